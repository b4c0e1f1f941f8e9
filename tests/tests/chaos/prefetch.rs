//! Prefetched units under faults.
//!
//! - Limits that come back within a test: the exact model lets all hits pass that passed, each at its `Decision::now`.
//! - Windows that outlive the test: every unit that Redis counted has passed, is on hand, or was lost with a reply or
//!   an instance.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use ratelimit_core::{Clock, Decision, FailureMode, Policy, Verdict};
use ratelimit_tests::{
    chaos::{
        Audit as _, Fixture, Loss, Observations, Ours, PATIENCE, TestCluster, eventually, ours,
    },
    model::{Spec, prefetch::beyond},
    prefetch_instance::PrefetchInstance,
};
use tokio::{
    sync::watch,
    task::{JoinSet, block_in_place},
    time::sleep,
};

use crate::{
    cluster,
    harness::{AT_ONCE, heals, is_checked, key, policy, remaining},
};

const SECOND: u64 = 1_000_000;
const BUCKET: Spec = Spec::TokenBucket {
    capacity: 4_000,
    refill: 4_000,
    period_us: SECOND,
};
/// The units of a window that outlives every test.
const UNITS: u64 = 20_000;
/// Its share at 5 %: the units of a block.
const SHARE: u64 = 1_000;
/// Hits a second of one instance: two of them want three times what [`BUCKET`] gives.
const RATE: u128 = 6_000;

fn prefetching(name: &str, limits: &str) -> Policy {
    policy(name, limits).with_prefetch(5).expect("a share")
}

/// A window that outlives every test.
fn long_window(name: &str) -> Policy {
    prefetching(name, &format!("fixed_window {UNITS}/366d"))
}

async fn instance(fixture: &Fixture) -> Ours {
    ours(fixture.config().timeout(AT_ONCE), FailureMode::Closed).await
}

/// The hits of one or several instances on one key.
#[derive(Debug, Default)]
struct Hits {
    passed: Vec<Decision>,
    unchecked: u64,
}

impl Hits {
    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Checked(decision) if decision.is_allowed() => self.passed.push(decision),
            Verdict::Checked(_) => {}
            _ => self.unchecked += 1,
        }
    }

    fn passed(&self) -> u64 {
        self.passed.len() as u64
    }

    fn prefetched(&self) -> u64 {
        let prefetched = self.passed.iter().filter(|hit| hit.is_prefetched);
        prefetched.count() as u64
    }

    fn times(&self) -> Vec<u64> {
        let passed = self.passed.iter();
        passed.map(|hit| hit.now.as_micros()).collect()
    }
}

/// Instances that hit one key, each at [`RATE`].
struct HotLoad {
    /// The policy of the next hits; none ends the load.
    policy: watch::Sender<Option<Policy>>,
    running: JoinSet<Hits>,
}

impl HotLoad {
    fn start(instances: &[Ours], policy: &Policy) -> HotLoad {
        let policy = watch::Sender::new(Some(policy.clone()));
        let mut running = JoinSet::new();
        for ours in instances {
            running.spawn(HotLoad::run(ours.clone(), policy.subscribe()));
        }
        HotLoad { policy, running }
    }

    async fn run(ours: Ours, mut policy: watch::Receiver<Option<Policy>>) -> Hits {
        let (started, mut made, mut hits) = (Instant::now(), 0, Hits::default());
        loop {
            let Some(current) = policy.borrow_and_update().clone() else {
                return hits;
            };
            let due = started.elapsed().as_micros() * RATE / 1_000_000;
            while made < due && !policy.has_changed().unwrap_or(true) {
                hits.count(ours.limiter.check(&current, &key("one")).await);
                made += 1;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn stop(self) -> Hits {
        self.policy.send_replace(None);
        let mut all = Hits::default();
        for hits in self.running.join_all().await {
            all.passed.extend(hits.passed);
            all.unchecked += hits.unchecked;
        }
        all
    }
}

/// Hits for half a second, so that the instance has units on hand.
async fn warm_up(ours: &Ours, policy: &Policy) -> Hits {
    let load = HotLoad::start(std::slice::from_ref(ours), policy);
    sleep(Duration::from_millis(500)).await;
    let hits = load.stop().await;
    assert!(hits.prefetched() > 0, "nothing is prefetched");
    hits
}

/// Hits until nothing is left of a long window, in Redis and on hand.
async fn drive_dry(ours: &Ours, policy: &Policy, audit: &Ours) -> Hits {
    let (started, mut hits, mut denied_in_a_row) = (Instant::now(), Hits::default(), 0);
    while denied_in_a_row < 100 {
        assert!(started.elapsed() < PATIENCE, "never dry");
        let before = hits.passed();
        hits.count(ours.limiter.check(policy, &key("one")).await);
        if hits.passed() > before {
            denied_in_a_row = 0;
        } else if audit.counted(policy, "one").await == UNITS {
            denied_in_a_row += 1;
        } else {
            sleep(Duration::from_millis(1)).await;
        }
    }
    hits
}

/// An instance that reads Redis past the proxy, without units of its own.
async fn auditor(fixture: &Fixture) -> Ours {
    let config = fixture.config_at(&fixture.server.url());
    let config = config.timeout(PATIENCE).connect_timeout(PATIENCE);
    ours(config, FailureMode::Closed).await
}

fn process(fixture: &Fixture, limits: &str, millis: u64) -> PrefetchInstance {
    let binary = env!("CARGO_BIN_EXE_prefetch_instance");
    let url = fixture.server.url();
    let rate = u64::try_from(RATE).expect("a small number");
    PrefetchInstance::start(binary, [&url, fixture.prefix(), limits], [rate, millis])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_instance_loses_what_it_held_and_nothing_else() {
    let fixture = Fixture::start(&[]).await;
    let (other, audit) = (instance(&fixture).await, auditor(&fixture).await);
    let window = long_window("hot");
    let mut killed = process(&fixture, &format!("fixed_window {UNITS}/366d"), 500);
    let its = block_in_place(|| killed.hits());
    drop(killed);
    let counted = audit.counted(&window, "one").await;
    let held = counted - its.passed.len() as u64;

    let rest = drive_dry(&other, &window, &audit).await;

    println!(
        "kill -9: {held} of {UNITS} units lost with the instance, {} passed",
        its.passed.len()
    );
    assert!((1..=2 * SHARE).contains(&held), "{held} held");
    assert_eq!(rest.passed(), UNITS - counted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bucket_has_all_units_of_a_killed_instance_back_when_it_is_full() {
    let fixture = Fixture::start(&[]).await;
    let other = instance(&fixture).await;
    // Without units of its own, which would keep the bucket from being full.
    let bucket = policy("hot", "4000/s");
    let mut killed = process(&fixture, "4000/s", 500);
    let mut passed = block_in_place(|| killed.hits()).passed;
    drop(killed);

    let full_at = Mutex::new(0);
    eventually("a full bucket", async || {
        let verdict = other.limiter.check_cost(&bucket, &key("one"), 4_000).await;
        let decision = verdict.decision().expect("the store decides");
        *full_at.lock().expect("no panic") = decision.now.as_micros();
        decision.is_allowed()
    })
    .await;

    let at = full_at.into_inner().expect("no panic");
    let after = at - passed[passed.len() - 1];
    println!(
        "kill -9: the bucket was full {} ms after the last hit",
        after / 1_000
    );
    passed.extend(std::iter::repeat_n(at, 4_000));
    assert_eq!(beyond(&[BUCKET], &passed), 0);
    // The fill time, and what a busy machine needs to notice.
    assert!(after < SECOND + SECOND, "not back after the fill time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_instance_that_was_stopped_spends_no_expired_unit() {
    let fixture = Fixture::start(&[]).await;
    let mut all = Vec::new();
    let mut instances = [(); 2].map(|()| process(&fixture, "4000/s", 5_000));
    sleep(Duration::from_millis(1_500)).await;
    instances[0].signal("STOP");
    sleep(Duration::from_secs(3)).await;
    instances[0].signal("CONT");

    for instance in &mut instances {
        let hits = block_in_place(|| instance.hits());
        println!(
            "SIGSTOP of an instance: {} of {} hits passed",
            hits.passed.len(),
            hits.hits
        );
        assert!(hits.prefetched > 0);
        all.extend(hits.passed);
    }
    assert_eq!(beyond(&[BUCKET], &all), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_redis_that_was_stopped_is_not_charged_for_what_nobody_got() {
    let fixture = Fixture::start(&[]).await;
    let config = || fixture.config().timeout(Duration::from_millis(100));
    let instances = [
        ours(config(), FailureMode::Closed).await,
        ours(config(), FailureMode::Closed).await,
    ];
    let load = HotLoad::start(&instances, &prefetching("stopped", "4000/s"));
    sleep(Duration::from_millis(700)).await;
    fixture.server.signal("STOP");
    sleep(Duration::from_millis(700)).await;
    fixture.server.signal("CONT");
    let resumed = Clock::system().now();
    for instance in &instances {
        heals(instance).await;
    }
    sleep(Duration::from_secs(1)).await;
    let hits = load.stop().await;

    let beyond = beyond(&[BUCKET], &hits.times());
    let passed_later = hits.passed.iter().any(|hit| hit.now > resumed);
    println!(
        "SIGSTOP of Redis: {} passed, {} from memory, {} unchecked, {beyond} beyond",
        hits.passed(),
        hits.prefetched(),
        hits.unchecked,
    );
    assert!(hits.unchecked > 0 && hits.prefetched() > 0 && passed_later);
    assert_eq!(beyond, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_that_are_killed_again_and_again_let_nothing_pass_beyond_the_limit() {
    let fixture = Fixture::start(&[]).await;
    let instances = [instance(&fixture).await, instance(&fixture).await];
    let limits = "4000/s; sliding_window_counter 100000/min";
    let load = HotLoad::start(&instances, &prefetching("killed", limits));
    for _ in 0..10 {
        sleep(Duration::from_millis(200)).await;
        fixture.command("CLIENT KILL TYPE normal SKIPME yes");
    }
    let hits = load.stop().await;

    let counter = Spec::SlidingWindowCounter {
        limit: 100_000,
        period_us: 60 * SECOND,
    };
    let beyond = beyond(&[BUCKET, counter], &hits.times());
    println!(
        "CLIENT KILL every 200 ms: {} passed, {} from memory, {} unchecked, {beyond} beyond",
        hits.passed(),
        hits.prefetched(),
        hits.unchecked
    );
    assert!(hits.prefetched() > 0);
    assert_eq!(beyond, 0);
}

/// A fault that empties the budget without the instance that holds units.
#[derive(Clone, Copy, Debug)]
enum Wipe {
    Reset,
    FlushAll,
    Restart,
}

/// As much as was on hand may pass beyond the limit: an instance does not notice that Redis has forgotten its charge.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_wipe_at_most_the_units_on_hand_pass_beyond_the_limit() {
    let mut fixture = Fixture::start(&[]).await;
    for wipe in [Wipe::Reset, Wipe::FlushAll, Wipe::Restart] {
        let (holder, other) = (instance(&fixture).await, instance(&fixture).await);
        let audit = auditor(&fixture).await;
        let name = format!("wiped-{wipe:?}");
        let window = long_window(&name);
        let before = warm_up(&holder, &window).await.passed();
        // A peek adds the units on hand: they are all there when no call is under way.
        eventually("all units on hand", async || {
            remaining(&holder.limiter.peek(&window, &key("one")).await) == UNITS - before
        })
        .await;
        let held = audit.counted(&window, "one").await - before;

        match wipe {
            Wipe::Reset => {
                let reset = other.limiter.reset(&window, &key("one")).await;
                reset.expect("a reset");
            }
            Wipe::FlushAll => fixture.command("FLUSHALL"),
            Wipe::Restart => block_in_place(|| fixture.server.restart()),
        }
        let audit_answers = async || is_checked(&audit.limiter.peek(&window, &key("one")).await);
        eventually("an audit", audit_answers).await;
        let after = warm_up(&holder, &window).await.passed();
        let after = after + drive_dry(&holder, &window, &audit).await.passed();

        let over = after - UNITS;
        println!("{wipe:?}: {held} held, {over} passed beyond the limit");
        assert!((1..=2 * SHARE).contains(&held), "{wipe:?}: {held} held");
        assert!(over <= held, "{wipe:?}: {over} beyond, {held} held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn units_of_a_lost_or_late_reply_are_charged_once_and_never_spent() {
    let observed = Observations::listen();
    let fixture = Fixture::start(&[]).await;
    let ours = instance(&fixture).await;
    let audit = auditor(&fixture).await;
    // The cost of a block as scripts read it: no other number of a call.
    let block = 800_f64.to_le_bytes();
    for loss in [
        Loss::Request,
        Loss::Reply,
        Loss::RestOfReply,
        Loss::ReplyInSilence,
    ] {
        let window = policy(
            &format!("lost-{loss:?}"),
            &format!("fixed_window {UNITS}/366d"),
        );
        let window = window.with_prefetch(4).expect("a share");
        let ambiguous = || observed.counter("rate_limiter_ambiguous_total", "");
        let ambiguous_before = ambiguous();
        let load = HotLoad::start(std::slice::from_ref(&ours), &window);
        for _ in 0..3 {
            fixture.proxy.lose(loss, block);
            eventually("a loss", async || !fixture.proxy.loses()).await;
            let decides = async || is_checked(&ours.limiter.peek(&window, &key("one")).await);
            eventually("a connection", decides).await;
        }
        let mut hits = load.stop().await;
        let rest = drive_dry(&ours, &window, &audit).await;
        hits.passed.extend(rest.passed);

        // Calls without a reply: blocks, and exact hits on the same connection, one unit each.
        let (lost, unknown) = (UNITS - hits.passed(), ambiguous() - ambiguous_before);
        println!("{loss:?} of 3 calls: {lost} units lost, {unknown} calls without a reply");
        match loss {
            Loss::Request => assert!(lost <= unknown, "{lost} units lost"),
            _ => assert!(
                (2_400..=2_400 + unknown).contains(&lost),
                "{loss:?}: {lost} units lost"
            ),
        }
    }

    // Replies that come after the time-out of the call.
    let config = fixture.config().timeout(Duration::from_millis(25));
    let impatient = ratelimit_tests::chaos::ours(config, FailureMode::Closed).await;
    let window = long_window("late");
    let load = HotLoad::start(std::slice::from_ref(&impatient), &window);
    for _ in 0..5 {
        sleep(Duration::from_millis(100)).await;
        fixture.proxy.delay(Duration::from_millis(40));
        sleep(Duration::from_millis(100)).await;
        fixture.proxy.behave();
    }
    let mut hits = load.stop().await;
    let rest = drive_dry(&impatient, &window, &audit).await;
    hits.passed.extend(rest.passed);
    let lost = UNITS - hits.passed();
    println!(
        "late replies: {lost} units lost, {} hits unchecked",
        hits.unchecked
    );
    // Late were the calls for blocks, hits, or both.
    assert!(hits.unchecked > 0 || lost > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn limits_that_change_under_load_let_nothing_pass_beyond_the_new_ones() {
    let fixture = Fixture::start(&[]).await;
    let instances = [instance(&fixture).await, instance(&fixture).await];
    let halved = Spec::TokenBucket {
        capacity: 2_000,
        refill: 2_000,
        period_us: SECOND,
    };
    let load = HotLoad::start(&instances, &prefetching("reloaded", "4000/s"));
    sleep(Duration::from_secs(1)).await;
    load.policy
        .send_replace(Some(prefetching("reloaded", "2000/s")));
    sleep(Duration::from_secs(1)).await;
    let hits = load.stop().await;

    let times_of = |limit: u64| -> Vec<u64> {
        let passed = hits.passed.iter().filter(|hit| hit.limit == limit);
        passed.map(|hit| hit.now.as_micros()).collect()
    };
    let (old, new) = (times_of(4_000), times_of(2_000));
    println!(
        "a reload: {} passed before it, {} afterwards",
        old.len(),
        new.len()
    );
    assert!(
        hits.passed
            .iter()
            .any(|hit| hit.is_prefetched && hit.limit == 2_000)
    );
    assert_eq!(beyond(&[BUCKET], &old), 0);
    assert_eq!(beyond(&[halved], &new), 0);
}

/// Replies are slow, so that a call may be under way when the instance ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_planned_end_and_a_dropped_limiter_give_all_units_back() {
    let fixture = Fixture::start(&[]).await;
    let audit = auditor(&fixture).await;
    for (number, limits) in [
        format!("fixed_window {UNITS}/366d"),
        format!("sliding_window_counter {UNITS}/366d; fixed_window 90000/366d"),
    ]
    .iter()
    .enumerate()
    {
        for ends_by in ["return", "drop"] {
            let ours = instance(&fixture).await;
            let policy = prefetching(&format!("ended-{number}-{ends_by}"), limits);
            fixture.proxy.delay(Duration::from_millis(10));
            let hits = warm_up(&ours, &policy).await;
            let held = audit.counted(&policy, "one").await - hits.passed();
            if ends_by == "return" {
                ours.limiter.return_prefetched().await;
            } else {
                drop(ours);
            }
            fixture.proxy.behave();
            let counted = async || audit.counted(&policy, "one").await;
            if ends_by == "drop" {
                let is_back = async || counted().await == hits.passed();
                eventually("units given back", is_back).await;
            }
            println!("{ends_by}: {held} units of `{limits}` given back");
            assert!(held > 0, "nothing was on hand");
            assert_eq!(counted().await, hits.passed(), "{limits} {ends_by}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn units_of_a_hash_slot_that_moves_are_neither_lost_nor_spent_twice() {
    let cluster = TestCluster::start_masters().await;
    let prefix = format!("prefetch-{}", std::process::id());
    let config = cluster::config(&cluster).timeout(AT_ONCE);
    let ours = ours(
        config.prefix(&prefix).expect("a prefix"),
        FailureMode::Closed,
    )
    .await;
    let from = cluster::shard_of(&cluster, "one");
    let window = long_window("moved");
    let load = HotLoad::start(std::slice::from_ref(&ours), &window);
    sleep(Duration::from_millis(300)).await;
    let name = format!("{prefix}:v1:moved:{{key:one}}");
    cluster::move_slot(&cluster, &name, [from, (from + 1) % 3]).await;
    sleep(Duration::from_millis(500)).await;
    let hits = load.stop().await;
    ours.limiter.return_prefetched().await;

    let counted = ours.counted(&window, "one").await;
    println!(
        "a slot moved: {} passed, {} from memory, {} unchecked, {counted} counted",
        hits.passed(),
        hits.prefetched(),
        hits.unchecked
    );
    assert!(hits.prefetched() > 0);
    assert_eq!((hits.unchecked, counted), (0, hits.passed()));
}
