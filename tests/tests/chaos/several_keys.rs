//! Policies by several keys that live on different nodes of a cluster: hanging nodes and denials.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use ratelimit_core::{
    Clock, Decision, FailureMode, Key, KeySet, MemoryStore, Policy, RedisConfig, Timestamp,
    store::{Hit, Store as _},
};
use ratelimit_tests::{
    chaos::{TestCluster, eventually, ours},
    random::Random,
    redis::{as_asked, connected},
};
use tokio::task::block_in_place;

use crate::harness::{AT_ONCE, is_checked, key, policy, remaining};

const LIMIT: u64 = 1_000;
const CALLS: u64 = 200;
const ROUNDS: u64 = 20;

fn config(cluster: &TestCluster) -> RedisConfig {
    as_asked(RedisConfig::new(&cluster.url()).expect("a valid address"))
}

/// Keys whose budgets live on one of the masters.
fn keys_on(cluster: &TestCluster, master: usize) -> impl Iterator<Item = Key> {
    let names = (0..).map(|number| format!("k{number}"));
    let here = names.filter(move |name| cluster.master_of(format!("{{key:{name}}}")) == master);
    here.map(|name| key(&name))
}

fn key_on(cluster: &TestCluster, master: usize) -> Key {
    keys_on(cluster, master)
        .next()
        .expect("some key lives there")
}

/// What remains of each limit.
fn left(decision: &Decision) -> Vec<u64> {
    decision.limits().map(|limit| limit.remaining).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_hangs_leaves_no_charge_on_the_others() {
    let cluster = TestCluster::start_masters().await;
    let ours = ours(config(&cluster).timeout(AT_ONCE), FailureMode::Closed).await;
    let (own, ip) = (key_on(&cluster, 0), key_on(&cluster, 1));
    let keys = KeySet::new(own.clone()).with("ip", ip.clone());
    let text = format!("fixed_window {LIMIT}/366d; fixed_window {LIMIT}/366d by ip");
    let both = policy("hang", &text);
    let alone = policy("alone", &format!("fixed_window {LIMIT}/366d"));
    let first = connected(config(&cluster).timeout(Duration::from_secs(5))).await;
    let warm = ours.limiter.check_keys(&both, &keys).await;
    let charged_before = LIMIT - remaining(&warm);

    cluster.nodes[1].signal("STOP");
    let mut unchecked = 0;
    let mut bystanders_lost = 0;
    for round in 0..=ROUNDS {
        let most = if round == 0 { CALLS } else { 1 };
        let hits = (0..most).map(|_| {
            let (limiter, both, keys) = (ours.limiter.clone(), both.clone(), keys.clone());
            tokio::spawn(async move { limiter.check_keys(&both, &keys).await })
        });
        for hit in hits.collect::<Vec<_>>() {
            unchecked += u64::from(!is_checked(&hit.await.expect("a verdict")));
        }
        let bystander = ours.limiter.check(&alone, &own).await;
        bystanders_lost += u64::from(!is_checked(&bystander));
    }
    let own_part = policy("hang", &format!("fixed_window {LIMIT}/366d"));
    let settled = settles_at(charged_before, async || {
        let look = first.hit(Hit::new(&own_part, &own).cost(0)).await;
        look.ok().map(|look| LIMIT - look.remaining)
    })
    .await;
    cluster.nodes[1].signal("CONT");
    let after = Instant::now();
    let last_look = RefCell::new(Vec::new());
    eventually("a decision by both nodes", async || {
        let look = ours
            .limiter
            .check_hit(Hit::for_keys(&both, &keys).cost(0))
            .await;
        *last_look.borrow_mut() = look.decision().map(left).unwrap_or_default();
        is_checked(&look)
    })
    .await;
    let healed = after.elapsed();
    let left = last_look.into_inner().into_iter();
    let spent: Vec<u64> = left.map(|left| LIMIT - left).collect();

    println!(
        "a node that hangs: {unchecked} of {} timed out, {settled} charged on the first key, \
         {bystanders_lost} of {} others on the first node lost, healed in {healed:?}",
        CALLS + ROUNDS,
        ROUNDS + 1,
    );
    assert_eq!(unchecked, CALLS + ROUNDS);
    assert_eq!(settled, charged_before, "a timed-out hit stayed charged");
    assert_eq!(spent, [charged_before; 2], "both keys are charged alike");
    assert_eq!(bystanders_lost, 0, "the node that answers was given up");
}

/// Waits until the value is `wanted`, or for five seconds, and tells the last value.
async fn settles_at(wanted: u64, value: impl AsyncFn() -> Option<u64>) -> u64 {
    let started = Instant::now();
    loop {
        let last = value().await;
        if last == Some(wanted) || started.elapsed() > Duration::from_secs(5) {
            return last.expect("the first node answers");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_denial_stands_while_the_node_of_another_key_is_away() {
    let mut cluster = TestCluster::start_masters().await;
    let budget = Duration::from_millis(500);
    let ours = ours(config(&cluster).timeout(budget), FailureMode::Local).await;
    let limiter = ours.limiter.clone().without_deny_cache();
    let text = "fixed_window 3/366d; fixed_window 1000/366d by ip";
    let counting = "fixed_window 3/366d; sliding_window_log 900/h count-denied by ip";
    let policies = [policy("denied", text), policy("counted", counting)];
    let (own, ip) = (key_on(&cluster, 0), key_on(&cluster, 1));
    let keys = KeySet::new(own).with("ip", ip.clone());
    for both in &policies {
        let mut passed = 0;
        for _ in 0..6 {
            passed += u64::from(limiter.check_keys(both, &keys).await.is_allowed());
        }
        assert_eq!(passed, 3, "{both:?}");
    }
    block_in_place(|| cluster.nodes[1].kill());
    let other = policy("other", "fixed_window 9/366d");
    eventually("a node that is away", async || {
        !is_checked(&limiter.check(&other, &ip).await)
    })
    .await;

    for both in &policies {
        for _ in 0..5 {
            let verdict = limiter.check_keys(both, &keys).await;

            assert!(!verdict.is_allowed(), "{verdict:?}");
            assert!(is_checked(&verdict), "{verdict:?}");
            let decision = verdict.decision().expect("a decision");
            assert_eq!((decision.binding, decision.remaining), (0, 0));
            assert_eq!(decision.limits().count(), 2);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_denial_stands_while_the_node_of_another_key_hangs() {
    let cluster = TestCluster::start_masters().await;
    let budget = Duration::from_secs(1);
    let ours = ours(config(&cluster).timeout(budget), FailureMode::Local).await;
    let limiter = ours.limiter.clone().without_deny_cache();
    let text = "fixed_window 1/366d; fixed_window 1000/366d by ip";
    let both = policy("hanging", text);
    let keys = KeySet::new(key_on(&cluster, 0)).with("ip", key_on(&cluster, 1));
    assert!(limiter.check_keys(&both, &keys).await.is_allowed());

    cluster.nodes[1].signal("STOP");
    let verdict = limiter.check_keys(&both, &keys).await;
    cluster.nodes[1].signal("CONT");

    assert!(!verdict.is_allowed(), "{verdict:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_refund_reaches_the_other_keys_when_the_first_node_is_down() {
    let mut cluster = TestCluster::start_masters().await;
    let budget = Duration::from_millis(500);
    let ours = ours(config(&cluster).timeout(budget), FailureMode::Closed).await;
    let limiter = ours.limiter.clone().without_deny_cache();
    let both = policy("down", "fixed_window 100/366d; fixed_window 100/366d by ip");
    let ip_part = policy("down", "fixed_window 100/366d by ip");
    let (own, ip) = (key_on(&cluster, 0), key_on(&cluster, 1));
    let keys = KeySet::new(own.clone()).with("ip", ip);
    let hit = Hit::for_keys(&both, &keys).cost(40);
    let (_, charge) = limiter.reserve(hit).await;
    let charge = charge.expect("there is room");
    block_in_place(|| cluster.nodes[0].kill());
    let other = policy("other", "fixed_window 9/366d");
    eventually("a node that is away", async || {
        !is_checked(&limiter.check(&other, &own).await)
    })
    .await;

    let settled = charge.settle(0).await;

    assert!(settled.is_err(), "the first key is still charged");
    eventually("a refund on the second node", async || {
        let look = limiter
            .check_hit(Hit::for_keys(&ip_part, &keys).cost(0))
            .await;
        look.decision().is_some_and(|look| look.remaining == 100)
    })
    .await;
}

/// All that a caller sees of a decision.
fn answer(decision: &Decision) -> String {
    let limits: Vec<String> = decision
        .limits()
        .map(|limit| {
            format!(
                "{:?} {} {:?}",
                limit.outcome, limit.remaining, limit.reset_after
            )
        })
        .collect();
    format!("{:?} by {}: {limits:?}", decision.outcome, decision.binding)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_penalty_box_by_address_counts_the_denials_of_all_its_users() {
    let cluster = TestCluster::start_masters().await;
    let clock = Clock::manual(Timestamp::from_secs(1_700_000_000));
    let budget = Duration::from_secs(20);
    let apart = connected(config(&cluster).timeout(budget).clock(clock.clone())).await;
    let together = MemoryStore::new().clock(clock.clone());
    let ip = key_on(&cluster, 1);
    for (name, text) in [
        ("box", "3/h; penalty_box 5/h for 1h by ip"),
        ("log", "3/h; sliding_window_log 5/h count-denied by ip"),
        ("first", "penalty_box 5/h for 1h by ip; fixed_window 3/h"),
        (
            "own",
            "sliding_window_log 2/h by ip; sliding_window_log 4/h count-denied",
        ),
    ] {
        let policy = Policy::parse(name, text).unwrap();
        let mut refused = [0, 0];
        let mut different = Vec::new();
        let users: Vec<Key> = keys_on(&cluster, 0).take(30).collect();
        for (user, own) in users.iter().enumerate() {
            for round in 0..4 {
                clock.advance(Duration::from_millis(37));
                let keys = KeySet::new(own.clone()).with("ip", ip.clone());
                let hit = Hit::for_keys(&policy, &keys);
                let expected = together.hit(hit).await.unwrap();
                let decision = apart.hit(hit).await.unwrap();
                refused[0] += u64::from(!expected.is_allowed());
                refused[1] += u64::from(!decision.is_allowed());
                if answer(&decision) != answer(&expected) {
                    different.push(format!(
                        "user {user}, hit {round}: {} in memory, {} in the cluster",
                        answer(&expected),
                        answer(&decision)
                    ));
                }
            }
        }

        println!(
            "{text}: memory refuses {}, the cluster {}",
            refused[0], refused[1]
        );
        assert!(refused[0] > 0, "{text}");
        assert_eq!(refused[0], refused[1], "{text}: {:#?}", different.first());
        assert!(different.is_empty(), "{text}: {:#?}", different.first());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_policies_by_keys_on_different_nodes_refuse_what_memory_refuses() {
    let cluster = TestCluster::start_masters().await;
    let places: Vec<Vec<Key>> = (0..3)
        .map(|master| keys_on(&cluster, master).take(2).collect())
        .collect();
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let clock = Clock::manual(Timestamp::from_secs(1_700_000_000));
        let budget = Duration::from_secs(20);
        let prefix = format!("apart-{seed}");
        let config = config(&cluster).prefix(&prefix).expect("a prefix");
        let apart = connected(config.timeout(budget).clock(clock.clone())).await;
        let together = MemoryStore::new().clock(clock.clone());
        let mut texts = Vec::new();
        for place in 0..random.range(2, 4) {
            let limit = random.range(1, 4);
            let text = random.one_of(&[
                "token_bucket N/min",
                "fixed_window N/min",
                "sliding_window_log N/min",
                "sliding_window_log N/min count-denied",
                "sliding_window_counter N/min",
                "penalty_box N/min for 90s",
                "penalty_box N/min for 10s growing",
            ]);
            let by = ["", " by ip", " by route"][usize::try_from(place % 3).unwrap()];
            texts.push(format!("{}{by}", text.replace('N', &limit.to_string())));
        }
        let text = texts.join("; ");
        let Ok(policy) = Policy::parse("traced", &text) else {
            continue;
        };
        for step in 0..40 {
            clock.advance(Duration::from_millis(
                random.one_of(&[0, 1, 700, 9_000, 40_000]),
            ));
            let mut pick = |master: usize| places[master][usize::from(random.one_in(2))].clone();
            let keys = KeySet::new(pick(0))
                .with("ip", pick(1))
                .with("route", pick(2));
            let hit = Hit::for_keys(&policy, &keys).cost(random.one_of(&[1, 1, 1, 2]));
            let expected = together.hit(hit).await.unwrap();
            let decision = apart.hit(hit).await.unwrap();

            assert_eq!(
                answer(&decision),
                answer(&expected),
                "step {step} of seed {seed}: {text}, cost {}",
                hit.cost
            );
        }
    }
}
