//! The local fallback continues from the replies of Redis, and charges Redis afterwards.

use std::{sync::Arc, time::Duration};

use ratelimit_core::{FailureMode, Policy, UncheckedReason, Verdict};
use ratelimit_tests::chaos::{Fixture, Ours, eventually, ours};

use crate::harness::{AT_ONCE, heals, is_checked, key, policy, remaining};

/// The rate algorithms, each with a budget of 100 that lasts for the whole test.
const LIMITS: [&str; 5] = [
    "100/h",
    "leaky_bucket 100/h queue 100 police",
    "fixed_window 100/366d",
    "sliding_window_log 100/h",
    "sliding_window_counter 100/366d",
];

/// What passed, and why the store did not decide.
#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    passed_locally: u64,
    /// Passed locally after a call without a reply: Redis may have charged the hit or not.
    ambiguous: u64,
    /// Denied locally after a call without a reply: Redis may have charged the hit all the same.
    denied_without_reply: u64,
}

impl Tally {
    fn count(&mut self, verdict: &Verdict) {
        if !verdict.is_allowed() {
            let is_timed_out = matches!(
                verdict,
                Verdict::Unchecked {
                    reason: UncheckedReason::TimedOut,
                    ..
                }
            );
            self.denied_without_reply += u64::from(is_timed_out);
            return;
        }
        self.passed += 1;
        if let Verdict::Unchecked { reason, .. } = verdict {
            self.passed_locally += 1;
            self.ambiguous += u64::from(*reason == UncheckedReason::TimedOut);
        }
    }

    fn add(&mut self, other: &Tally) {
        self.passed += other.passed;
        self.passed_locally += other.passed_locally;
        self.ambiguous += other.ambiguous;
        self.denied_without_reply += other.denied_without_reply;
    }
}

async fn pair(fixture: &Fixture) -> [Ours; 2] {
    let instance = || ours(fixture.config().timeout(AT_ONCE), FailureMode::Local);
    [instance().await, instance().await]
}

/// The same instances with the default timeout, so that a stopped server costs each hit little time.
async fn quick_pair(fixture: &Fixture) -> [Ours; 2] {
    let instance = || ours(fixture.config(), FailureMode::Local);
    [instance().await, instance().await]
}

/// Takes the connections of all instances away, and waits until they notice.
async fn disconnect(fixture: &Fixture, instances: &[Ours]) {
    fixture.proxy.turn_away();
    fixture.proxy.reset();
    for ours in instances {
        eventually("no connection", async || {
            !ours.store.wait_connected(Duration::ZERO).await
        })
        .await;
    }
}

async fn hits(ours: &Ours, limit: &Policy, count: usize) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..count {
        tally.count(&ours.limiter.check(limit, &key("k")).await);
    }
    tally
}

/// Spends units by hits that the store decides, on both instances in turn.
async fn spend(instances: &[Ours; 2], limit: &Policy, units: usize) {
    for unit in 0..units {
        let ours = &instances[unit % 2];
        eventually("decided by the store", async || {
            is_checked(&ours.limiter.peek(limit, &key("k")).await)
        })
        .await;
        let verdict = ours.limiter.check(limit, &key("k")).await;
        assert!(is_checked(&verdict) && verdict.is_allowed(), "{verdict:?}");
    }
}

/// (a)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_exhausted_budget_stays_exhausted_while_redis_is_stopped() {
    let fixture = Fixture::start(&[]).await;
    let instances = pair(&fixture).await;
    let mut passed = Vec::new();
    for (number, limits) in LIMITS.iter().enumerate() {
        let limit = policy(&format!("a{number}"), limits);
        spend(&instances, &limit, 100).await;
        for ours in &instances {
            assert_eq!(hits(ours, &limit, 1).await.passed, 0, "{limits}");
        }
        fixture.server.signal("STOP");
        // Without a connection, hits fail at once.
        disconnect(&fixture, &instances).await;
        for ours in &instances {
            passed.push(hits(ours, &limit, 1_000).await.passed);
        }
        fixture.server.signal("CONT");
        fixture.proxy.behave();
        for ours in &instances {
            heals(ours).await;
        }
    }
    println!("(a) passed of 1,000 on each instance, by algorithm: {passed:?}");
    assert_eq!(passed, [0; 10]);
}

/// (b)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_budget_that_is_spent_in_part_continues_on_each_instance() {
    let fixture = Fixture::start(&[]).await;
    let instances = pair(&fixture).await;
    let mut passed = Vec::new();
    for (number, limits) in LIMITS.iter().enumerate() {
        let limit = policy(&format!("b{number}"), limits);
        spend(&instances, &limit, 30).await;
        // Each instance knows all 30: a peek is a reply like any other.
        for ours in &instances {
            assert_eq!(remaining(&ours.limiter.peek(&limit, &key("k")).await), 70);
        }
        fixture.server.signal("STOP");
        disconnect(&fixture, &instances).await;
        for ours in &instances {
            passed.push(hits(ours, &limit, 1_000).await.passed);
        }
        fixture.server.signal("CONT");
        fixture.proxy.behave();
        for ours in &instances {
            heals(ours).await;
        }
    }
    println!("(b) passed after 30 of 100 were spent, by algorithm: {passed:?}");
    // The first bucket gains a token in 36 s, and a busy machine may take that long.
    assert!(
        passed.iter().all(|passed| (70..=71).contains(passed)),
        "{passed:?}"
    );
}

/// (c)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn late_replies_let_pass_no_more_than_the_ambiguous_hits() {
    let fixture = Fixture::start(&[]).await;
    let instances = quick_pair(&fixture).await;
    let limit = policy("c", "fixed_window 500/366d");
    let mut total = Tally::default();
    for round in 0..300 {
        // One call in twenty of each instance is answered after 40 ms.
        if round % 4 == 1 {
            fixture.proxy.delay(Duration::from_millis(40));
            for ours in &instances {
                total.add(&hits(ours, &limit, 1).await);
            }
            fixture.proxy.behave();
        }
        for ours in &instances {
            total.add(&hits(ours, &limit, 5).await);
        }
    }
    println!("(c) {total:?} of 3,000 on a budget of 500");
    assert!(total.passed >= 500, "{total:?}");
    assert!(total.passed <= 500 + total.ambiguous, "{total:?}");
}

/// (d)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hits_that_passed_in_an_outage_are_charged_afterwards() {
    let fixture = Fixture::start(&[]).await;
    let instances = pair(&fixture).await;
    for (number, limits) in [
        "fixed_window 1000/366d",
        "1000/d",
        "sliding_window_log 1000/d; fixed_window 1000/366d",
    ]
    .iter()
    .enumerate()
    {
        let limit = policy(&format!("d{number}"), limits);
        spend(&instances, &limit, 2).await;
        disconnect(&fixture, &instances).await;
        let mut tally = Tally::default();
        for ours in &instances {
            tally.add(&hits(ours, &limit, 100).await);
        }
        assert_eq!(tally.passed_locally, 200, "{limits}: {tally:?}");
        fixture.proxy.behave();
        let uncounted = 200 - tally.ambiguous;
        let left = 1_000 - 2 - uncounted;
        let caught_up = eventually("charged", async || {
            let verdict = instances[0].limiter.peek(&limit, &key("k")).await;
            is_checked(&verdict) && remaining(&verdict) <= left
        })
        .await;
        let remaining = remaining(&instances[1].limiter.peek(&limit, &key("k")).await);
        println!("(d) {limits}: {tally:?}, {remaining} left of 1,000 after {caught_up:?}");
        // A bucket forgives a token in 86 s.
        assert!(
            (left..=left + 1).contains(&remaining),
            "{limits}: {remaining} left"
        );
        for ours in &instances {
            heals(ours).await;
        }
    }
}

/// (e)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_comes_back_empty_is_charged_the_uncounted_hits() {
    let mut fixture = Fixture::start(&[]).await;
    let instances = pair(&fixture).await;
    let limit = policy("e", "fixed_window 1000/366d");
    spend(&instances, &limit, 10).await;
    fixture.server.kill();
    disconnect(&fixture, &instances).await;
    fixture.proxy.behave();
    let mut tally = hits(&instances[0], &limit, 50).await;
    tally.add(&hits(&instances[1], &limit, 50).await);
    fixture.server.restart();
    let left = 1_000 - (tally.passed_locally - tally.ambiguous);
    let caught_up = eventually("charged", async || {
        let verdict = instances[0].limiter.peek(&limit, &key("k")).await;
        is_checked(&verdict) && remaining(&verdict) <= left
    })
    .await;
    println!("(e) {tally:?}: {left} left after {caught_up:?}");
    assert_eq!(
        remaining(&instances[1].limiter.peek(&limit, &key("k")).await),
        left
    );
}

/// (f)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_instance_that_ends_loses_only_its_uncounted_hits() {
    let fixture = Fixture::start(&[]).await;
    let [crashed, other] = pair(&fixture).await;
    let limit = policy("f", "fixed_window 1000/366d");
    let both = [crashed.clone(), other.clone()];
    spend(&both, &limit, 10).await;
    disconnect(&fixture, &both).await;
    drop(both);
    let lost = hits(&crashed, &limit, 40).await;
    let charged = hits(&other, &limit, 60).await;
    drop(crashed);
    fixture.proxy.behave();
    let left = 1_000 - 10 - (charged.passed_locally - charged.ambiguous);
    eventually("charged", async || {
        let verdict = other.limiter.peek(&limit, &key("k")).await;
        is_checked(&verdict) && remaining(&verdict) <= left
    })
    .await;
    println!("(f) lost {lost:?}, charged {charged:?}");
    assert_eq!(
        remaining(&other.limiter.peek(&limit, &key("k")).await),
        left
    );
}

/// A share of what is left, not of the whole limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_local_share_divides_what_is_left() {
    let fixture = Fixture::start(&[]).await;
    let instances = std::num::NonZeroU32::new(4).expect("not zero");
    let config = fixture.config().timeout(AT_ONCE);
    let ours = ours(config, FailureMode::LocalShare { instances }).await;
    let mut passed = Vec::new();
    for (number, limits) in LIMITS.iter().enumerate() {
        let limit = policy(&format!("share{number}"), limits);
        spend(&[ours.clone(), ours.clone()], &limit, 60).await;
        disconnect(&fixture, std::slice::from_ref(&ours)).await;
        passed.push(hits(&ours, &limit, 100).await.passed);
        fixture.proxy.behave();
        heals(&ours).await;
    }
    println!("a quarter of the 40 left, by algorithm: {passed:?}");
    assert!(passed.iter().all(|passed| *passed == 10), "{passed:?}");
}

/// A refund of a hit that passed locally is not charged afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_refund_in_an_outage_is_not_charged_afterwards() {
    let fixture = Fixture::start(&[]).await;
    let ours = Arc::new(ours(fixture.config().timeout(AT_ONCE), FailureMode::Local).await);
    for (number, limits) in LIMITS.iter().enumerate() {
        let limit = policy(&format!("refund{number}"), limits);
        spend(&[(*ours).clone(), (*ours).clone()], &limit, 2).await;
        disconnect(&fixture, std::slice::from_ref(&ours)).await;
        let subject = key("k");
        for number in 0..10 {
            let hit = ratelimit_core::store::Hit::new(&limit, &subject);
            let (_, reservation) = ours.limiter.reserve(hit).await;
            let reservation = reservation.expect("the hit passed");
            if number >= 4 {
                reservation.refund().await.expect("a local refund");
            }
        }
        fixture.proxy.behave();
        heals(&ours).await;
        eventually("charged", async || {
            let verdict = ours.limiter.peek(&limit, &subject).await;
            is_checked(&verdict) && remaining(&verdict) <= 94
        })
        .await;
        // Nothing more is charged while the next key catches up.
        assert_eq!(
            remaining(&ours.limiter.peek(&limit, &subject).await),
            94,
            "{limits}"
        );
    }
}

const BUSY_ROUNDS: usize = 10;
const BUSY_CLIENTS: usize = 64;
const BUSY_CHECKS: usize = 3_000;
const BUSY_LIMIT: u64 = 500;

/// Keeps all cores busy until it is dropped.
struct Spinners(Arc<std::sync::atomic::AtomicBool>);

impl Spinners {
    fn start() -> Spinners {
        let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..4 * cores {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Spinners(is_over)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// On a busy host calls miss their time budget. No more passes than the budget and the hits whose outcome is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_a_busy_host_the_limit_holds_but_for_ambiguous_hits() {
    let fixture = Fixture::start(&[]).await;
    let config = || fixture.config().timeout(Duration::from_millis(25));
    let instances = Arc::new([
        ours(config(), FailureMode::Local).await,
        ours(config(), FailureMode::Local).await,
    ]);
    let spinners = Spinners::start();
    let mut rounds = Vec::new();
    for round in 0..BUSY_ROUNDS {
        let limit = policy(&format!("busy{round}"), &format!("{BUSY_LIMIT}/366d"));
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..BUSY_CLIENTS {
            let (instances, limit) = (Arc::clone(&instances), limit.clone());
            let count =
                BUSY_CHECKS / BUSY_CLIENTS + usize::from(client < BUSY_CHECKS % BUSY_CLIENTS);
            clients.spawn(async move {
                let mut tally = Tally::default();
                for _ in 0..count {
                    tally.add(&hits(&instances[client % 2], &limit, 1).await);
                    // The work of a request.
                    let started = std::time::Instant::now();
                    while started.elapsed() < Duration::from_micros(100) {
                        std::hint::spin_loop();
                    }
                }
                (client % 2, tally)
            });
        }
        let mut tallies = [Tally::default(), Tally::default()];
        while let Some(tally) = clients.join_next().await {
            let (instance, tally) = tally.expect("no client panics");
            tallies[instance].add(&tally);
        }
        rounds.push(tallies);
    }
    drop(spinners);
    for [one, other] in &rounds {
        let passed = one.passed + other.passed;
        let ambiguous = one.ambiguous + other.ambiguous;
        let uncharged = |tally: &Tally| tally.passed_locally - tally.ambiguous;
        println!(
            "busy host: {passed} of {BUSY_CHECKS} passed on a budget of {BUSY_LIMIT}; locally {} and {}, {ambiguous} of \
             them ambiguous",
            one.passed_locally, other.passed_locally
        );
        let lost = one.denied_without_reply + other.denied_without_reply;
        assert!(passed + lost >= BUSY_LIMIT, "{rounds:?}");
        // An instance knows its own hits and those that Redis counted: beyond the limit it lets pass only hits whose
        // reply was lost, and all instances together what the others let pass without Redis.
        for instance in [one, other] {
            assert!(
                instance.passed <= BUSY_LIMIT + instance.ambiguous,
                "{rounds:?}"
            );
        }
        let bound = BUSY_LIMIT + ambiguous + uncharged(one).max(uncharged(other));
        assert!(passed <= bound, "{rounds:?}");
    }
}
