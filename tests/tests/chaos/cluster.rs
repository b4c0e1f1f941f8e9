//! A cluster of six that loses a master, or moves a slot.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ratelimit_core::{FailureMode, Limiter, RedisConfig};
use ratelimit_tests::{
    chaos::{Audit as _, Loss, Observations, PATIENCE, TestCluster, endless, eventually, ours},
    redis::as_asked,
};
use tokio::task::{JoinHandle, block_in_place};

use crate::harness::{AT_ONCE, SOON, is_checked, key, policy, remaining};

/// Longer than the pauses of a busy machine, so that what leaves the store does so for a reason.
const BUDGET: Duration = Duration::from_secs(1);

pub(crate) fn config(cluster: &TestCluster) -> RedisConfig {
    as_asked(RedisConfig::new(&cluster.url()).expect("a valid address"))
}

/// Where a key's budget lives.
pub(crate) fn shard_of(cluster: &TestCluster, name: &str) -> usize {
    cluster.master_of(format!("{{key:{name}}}"))
}

/// What became of the calls on one shard.
#[derive(Debug, Default)]
struct Calls {
    checked: u64,
    unchecked: u64,
    longest: Duration,
}

/// Calls on one key until told to stop.
fn call(limiter: Limiter, name: String, stop: Arc<AtomicBool>) -> JoinHandle<Calls> {
    tokio::spawn(async move {
        let mut calls = Calls::default();
        while !stop.load(Ordering::SeqCst) {
            let asked = Instant::now();
            let verdict = limiter.check(&endless(), &key(&name)).await;
            calls.longest = calls.longest.max(asked.elapsed());
            if is_checked(&verdict) {
                calls.checked += 1;
            } else {
                calls.unchecked += 1;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        calls
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_20_a_dead_master_takes_only_its_own_slots_until_the_failover() {
    let mut cluster = TestCluster::start().await;
    let ours = ours(config(&cluster).timeout(BUDGET), FailureMode::Local).await;
    let names: Vec<String> = (0..24).map(|n| format!("k{n}")).collect();
    let shards: Vec<usize> = names.iter().map(|name| shard_of(&cluster, name)).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = names
        .iter()
        .map(|name| call(ours.limiter.clone(), name.clone(), Arc::clone(&stop)))
        .collect();

    tokio::time::sleep(Duration::from_millis(500)).await;
    block_in_place(|| cluster.nodes[0].kill());
    eventually("a promoted replica", async || {
        cluster.says(3, &["INFO"], "role:master")
            && cluster.says(1, &["CLUSTER", "INFO"], "cluster_slots_fail:0")
    })
    .await;
    let promoted = Instant::now();
    let on_dead_shard = &names[shards.iter().position(|shard| *shard == 0).unwrap()];
    eventually("a decision by the new master", async || {
        is_checked(&ours.limiter.peek(&endless(), &key(on_dead_shard)).await)
    })
    .await;
    let healed = promoted.elapsed();
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::SeqCst);

    let (mut dead, mut alive) = (Calls::default(), Calls::default());
    for (caller, shard) in callers.into_iter().zip(&shards) {
        let calls = caller.await.unwrap();
        let sum = if *shard == 0 { &mut dead } else { &mut alive };
        sum.checked += calls.checked;
        sum.unchecked += calls.unchecked;
        sum.longest = sum.longest.max(calls.longest);
    }
    println!(
        "row 20 master killed: healed in {healed:?}; its slots {dead:?}; the others {alive:?}"
    );
    assert!(healed < SOON);
    assert!(dead.unchecked > 0 && dead.checked > 0);
    assert_eq!(alive.unchecked, 0, "another shard was affected");
    assert!(alive.longest.max(dead.longest) < BUDGET + AT_ONCE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_20_a_slot_that_moves_loses_no_decision_and_no_count() {
    let cluster = TestCluster::start().await;

    moves_a_slot(&cluster, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_20_a_slot_that_moves_to_a_new_node_loses_no_decision_and_no_count() {
    let mut cluster = TestCluster::start().await;
    let newcomer = cluster.grow().await;

    moves_a_slot(&cluster, newcomer).await;
}

/// Moves a slot under load to the node `to`.
async fn moves_a_slot(cluster: &TestCluster, to: usize) {
    let config = config(cluster).timeout(AT_ONCE);
    let prefix = format!("moving-{}", std::process::id());
    let ours = ours(
        config.prefix(&prefix).expect("a prefix"),
        FailureMode::Closed,
    )
    .await;
    let name = (0..1_000)
        .map(|n| format!("m{n}"))
        .find(|name| shard_of(cluster, name) == 0)
        .expect("a key of the first shard");
    let stop = Arc::new(AtomicBool::new(false));
    let caller = call(ours.limiter.clone(), name.clone(), Arc::clone(&stop));
    tokio::time::sleep(Duration::from_millis(300)).await;

    let budget = format!("{prefix}:v1:endless:{{key:{name}}}");
    move_slot(cluster, &budget, [0, to]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::SeqCst);
    let calls = caller.await.expect("a caller");

    let counted = ours.counted(&endless(), &name).await;
    println!("row 20 slot moved: {calls:?}, counted {counted}");
    assert_eq!(calls.unchecked, 0);
    assert_eq!(counted, calls.checked);
}

/// Moves the slot of `name` from one master to another, in the steps of `redis-cli`.
pub(crate) async fn move_slot(cluster: &TestCluster, name: &str, [from, to]: [usize; 2]) {
    let slot: u64 = cluster.ask(0, &["CLUSTER", "KEYSLOT", name]);
    let slot = slot.to_string();
    let (giver, taker) = (cluster.id(from), cluster.id(to));
    let port = cluster.nodes[to].port().to_string();
    cluster.ask::<()>(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &giver]);
    cluster.ask::<()>(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &taker]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.ask::<redis::Value>(from, &["MIGRATE", "127.0.0.1", &port, name, "0", "1000"]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    for node in [to, from] {
        cluster.ask::<()>(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &taker]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_20_a_silent_shard_does_not_slow_the_others() {
    let cluster = TestCluster::start_behind_proxies().await;
    let ours = ours(config(&cluster).timeout(AT_ONCE), FailureMode::Local).await;
    let on_shard = |shard: usize| {
        let mut names = (0..1_000).map(|n| format!("s{n}"));
        names
            .find(|name| shard_of(&cluster, name) == shard)
            .unwrap()
    };
    let stop = Arc::new(AtomicBool::new(false));
    let calls_on = |shard| call(ours.limiter.clone(), on_shard(shard), Arc::clone(&stop));
    let callers: Vec<_> = (0..3).map(calls_on).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;

    // Longer than a call waits. The nodes themselves do not talk through the proxies.
    cluster.proxies[0].freeze();
    tokio::time::sleep(2 * AT_ONCE).await;
    cluster.proxies[0].thaw();
    let thawed = Instant::now();
    eventually("a decision by the shard", async || {
        is_checked(&ours.limiter.peek(&endless(), &key(&on_shard(0))).await)
    })
    .await;
    let healed = thawed.elapsed();
    stop.store(true, Ordering::SeqCst);

    let mut told = Vec::new();
    for caller in callers {
        told.push(caller.await.unwrap());
    }
    println!("row 20 a silent shard: healed in {healed:?}; {told:?}");
    assert!(healed < SOON && told[0].unchecked > 0);
    assert_eq!(told[1].unchecked + told[2].unchecked, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_07_a_reply_lost_in_a_cluster_is_counted_once() {
    let cluster = TestCluster::start_behind_proxies().await;
    let ours = ours(config(&cluster).timeout(BUDGET), FailureMode::Closed).await;
    for n in 0..6 {
        let name = format!("lost-{n}");
        let decides = async || is_checked(&ours.limiter.peek(&endless(), &key(&name)).await);
        eventually("a decision by the shard", decides).await;

        let shard = &cluster.proxies[shard_of(&cluster, &name)];
        shard.lose(Loss::Reply, format!("{{key:{name}}}"));
        let lost = ours.limiter.check(&endless(), &key(&name)).await;
        eventually("a decision by the shard", decides).await;

        assert!(!is_checked(&lost) && !shard.loses());
        assert_eq!(ours.counted(&endless(), &name).await, 1);
    }
    println!("row 07 lost replies in a cluster: 6 lost, 6 counted once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_15_a_key_that_begins_with_a_brace_is_limited_in_a_cluster() {
    let cluster = TestCluster::start().await;
    let ours = ours(config(&cluster).timeout(PATIENCE), FailureMode::Open).await;
    let several = policy("braces", "2/h; fixed_window 3/366d; sliding_window_log 5/h");

    for name in ["}", "}x", "{}", "}{", "{", "a}b{c"] {
        let mut answers = Vec::new();
        for _ in 0..3 {
            let verdict = ours.limiter.check(&several, &key(name)).await;
            assert!(is_checked(&verdict), "{name}: {verdict:?}");
            answers.push(verdict.is_allowed());
        }

        assert_eq!(answers, [true, true, false], "{name}");
    }
    println!("case 15 keys that begin with a brace: limited on a cluster of six");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_hits_on_many_shards_exactly_the_limits_pass() {
    let cluster = TestCluster::start().await;
    let ours = ours(config(&cluster).timeout(PATIENCE), FailureMode::Closed).await;
    let limit = policy("exact", "fixed_window 20/366d");
    let tasks = (0..16).map(|_| {
        let (limiter, limit) = (ours.limiter.clone(), limit.clone());
        tokio::spawn(async move {
            let mut admitted = 0;
            for n in 0..60 {
                let verdict = limiter.check(&limit, &key(&format!("k{}", n % 12))).await;
                admitted += u64::from(verdict.is_allowed());
            }
            admitted
        })
    });

    let mut admitted = 0;
    for task in tasks.collect::<Vec<_>>() {
        admitted += task.await.unwrap();
    }

    assert_eq!(admitted, 12 * 20);
    let look = ours.limiter.peek(&limit, &key("k0")).await;
    assert_eq!(remaining(&look), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_was_removed_is_not_reported_as_down() {
    let observed = Observations::listen();
    let mut cluster = TestCluster::start_masters().await;
    let config = RedisConfig::new(&cluster.url()).expect("a valid address");
    let ours = ours(config, FailureMode::Local).await;
    let newcomer = cluster.grow().await;
    let server = cluster.nodes[newcomer].port().to_string();
    let is_up = || observed.gauge("rate_limiter_store_up", &server);
    eventually("a connection to the newcomer", async || {
        let _ = ours.limiter.check(&endless(), &key("k")).await;
        is_up() == Some(1.0)
    })
    .await;
    let id = cluster.id(newcomer);

    block_in_place(|| cluster.nodes[newcomer].kill());
    for node in 0..newcomer {
        cluster.ask::<()>(node, &["CLUSTER", "FORGET", &id]);
    }

    eventually("a gauge without a value", async || {
        is_up().is_some_and(f64::is_nan)
    })
    .await;
}
