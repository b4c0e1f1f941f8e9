//! A hash slot that moves: calls that have to be made again, and nodes that hang after a redirection.

use std::time::Duration;

use ratelimit_core::{FailureMode, KeySet, RedisConfig};
use ratelimit_tests::{
    chaos::{Audit as _, Fixture, Ours, PATIENCE, TestCluster, endless, eventually, ours},
    redis::{Deployment, as_asked},
};
use tokio::task::block_in_place;

use crate::harness::{is_checked, key, policy, remaining};

/// Time for a call to be made, and to be answered with a redirection.
const A_WHILE: Duration = Duration::from_millis(200);

/// A configuration of the documented user, who may use no other prefix.
fn config(cluster: &TestCluster, name: &str) -> RedisConfig {
    let deployment = Deployment::Cluster;
    block_in_place(|| {
        for node in &cluster.nodes {
            deployment.add_user_to(node);
        }
    });
    let user = format!("://{}", deployment.user());
    let config = RedisConfig::new(&cluster.url().replacen("://", &user, 1));
    let config = config.and_then(|config| config.prefix(&prefix(name)));
    as_asked(config.expect("a valid address"))
}

fn prefix(name: &str) -> String {
    format!("rate_limiter:{name}")
}

/// A key of the first master.
fn name_on_the_first(cluster: &TestCluster) -> String {
    let mut names = (0..1_000).map(|number| format!("m{number}"));
    let is_there = |name: &String| cluster.master_of(format!("{{key:{name}}}")) == 0;
    names.find(is_there).expect("a key of the first master")
}

/// A slot of the first master on its way to another.
struct Moving<'a> {
    cluster: &'a TestCluster,
    slot: String,
    to: usize,
}

impl Moving<'_> {
    fn begin<'a>(cluster: &'a TestCluster, name: &str, to: usize) -> Moving<'a> {
        let tag = format!("{{key:{name}}}");
        let slot: u64 = cluster.ask(0, &["CLUSTER", "KEYSLOT", &tag]);
        let moving = Moving {
            cluster,
            slot: slot.to_string(),
            to,
        };
        moving.set(to, "IMPORTING", &cluster.id(0));
        moving.set(0, "MIGRATING", &cluster.id(to));
        moving
    }

    fn set(&self, node: usize, state: &str, other: &str) {
        let words = ["CLUSTER", "SETSLOT", &self.slot, state, other];
        self.cluster.ask::<()>(node, &words);
    }

    fn migrate(&self, name: &str) {
        let port = self.cluster.nodes[self.to].port().to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, name, "0", "1000"];
        self.cluster.ask::<redis::Value>(0, &words);
    }

    fn end(&self) {
        let taker = self.cluster.id(self.to);
        for node in [self.to, 0] {
            self.set(node, "NODE", &taker);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_on_a_slot_that_is_half_moved_is_made_again() {
    let cluster = TestCluster::start_masters().await;
    let ours = ours(
        config(&cluster, "half").timeout(PATIENCE),
        FailureMode::Closed,
    )
    .await;
    let name = name_on_the_first(&cluster);
    let both = policy("half", "fixed_window 10/366d; fixed_window 10/366d by ip");
    // Two budgets in one slot, so that one call reads both.
    let keys = KeySet::new(key(&name)).with("ip", key(&name));
    let first = ours.limiter.check_keys(&both, &keys).await;
    assert!(is_checked(&first), "{first:?}");

    let moving = Moving::begin(&cluster, &name, 1);
    moving.migrate(&format!("{}:v1:half:{{key:{name}}}", prefix("half")));
    let (limiter, again, again_by) = (ours.limiter.clone(), both.clone(), keys.clone());
    let check = tokio::spawn(async move { limiter.check_keys(&again, &again_by).await });
    tokio::time::sleep(A_WHILE).await;
    moving.migrate(&format!("{}:v1:half~ip:{{key:{name}}}", prefix("half")));
    moving.end();
    let verdict = check.await.expect("a verdict");

    assert!(
        is_checked(&verdict),
        "TRYAGAIN was not retried: {verdict:?}"
    );
    let decision = verdict.decision().expect("a decision");
    let left: Vec<u64> = decision.limits().map(|limit| limit.remaining).collect();
    assert_eq!(left, [8, 8], "two hits, each counted once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tryagain_is_retried_within_the_timeout() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(PATIENCE), FailureMode::Closed).await;
    let limit = policy("again", "fixed_window 10/366d");
    let _ = ours.limiter.check(&limit, &key("k")).await;

    fixture
        .proxy
        .answer(b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
    let limiter = ours.limiter.clone();
    let check = tokio::spawn(async move { limiter.check(&limit, &key("k")).await });
    tokio::time::sleep(A_WHILE).await;
    fixture.proxy.behave();
    let verdict = check.await.expect("a verdict");

    assert!(is_checked(&verdict), "{verdict:?}");
    assert_eq!(verdict.decision().map(|told| told.remaining), Some(8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_documented_user_follows_a_slot_that_moves() {
    let cluster = TestCluster::start_masters().await;
    let ours = ours(
        config(&cluster, "follows").timeout(PATIENCE),
        FailureMode::Closed,
    )
    .await;
    let name = name_on_the_first(&cluster);
    let limit = policy("follows", "fixed_window 10/366d");

    // A key that is not there any more is asked for where its slot moves to.
    let moving = Moving::begin(&cluster, &name, 1);
    let on_its_way = ours.limiter.check(&limit, &key(&name)).await;
    moving.end();
    let moved = ours.limiter.check(&limit, &key(&name)).await;

    assert_eq!((remaining(&on_its_way), remaining(&moved)), (9, 8));
}

/// Lets another instance call the scripts on the node that serves `name`, so that it knows them.
async fn load_scripts(cluster: &TestCluster, name: &str) {
    let config = config(cluster, "other").timeout(PATIENCE);
    let other = ours(config, FailureMode::Closed).await;
    eventually("a decision by the new node", async || {
        is_checked(&other.limiter.check(&endless(), &key(name)).await)
    })
    .await;
}

/// Asks a node that hangs right after the redirection to it, and tells what is counted when it goes on.
async fn counted_after_hang(prefix: &str, has_moved: bool) -> (u64, u64) {
    let mut cluster = TestCluster::start_masters().await;
    let newcomer = cluster.grow().await;
    let time_out = Duration::from_millis(100);
    let ours: Ours = ours(
        config(&cluster, prefix).timeout(time_out),
        FailureMode::Closed,
    )
    .await;
    let name = name_on_the_first(&cluster);
    let moving = Moving::begin(&cluster, &name, newcomer);
    if has_moved {
        moving.end();
        load_scripts(&cluster, &name).await;
    }

    cluster.nodes[newcomer].signal("STOP");
    let mut unchecked = 0;
    for _ in 0..4 {
        let verdict = ours.limiter.check(&endless(), &key(&name)).await;
        unchecked += u64::from(!is_checked(&verdict));
    }
    cluster.nodes[newcomer].signal("CONT");
    if !has_moved {
        moving.end();
    }
    eventually("a decision by the new node", async || {
        is_checked(&ours.limiter.peek(&endless(), &key(&name)).await)
    })
    .await;
    let patient = config(&cluster, prefix).timeout(PATIENCE);
    let patient = self::ours(patient, FailureMode::Closed).await;
    (unchecked, patient.counted(&endless(), &name).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_counted_by_a_node_that_hangs_after_ask() {
    let (unchecked, counted) = counted_after_hang("ask", false).await;

    println!("after ASK: {unchecked} calls timed out, {counted} counted afterwards");
    assert_eq!((unchecked, counted), (4, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_counted_by_a_node_that_hangs_after_moved() {
    let (unchecked, counted) = counted_after_hang("moved", true).await;

    println!("after MOVED: {unchecked} calls timed out, {counted} counted afterwards");
    assert_eq!((unchecked, counted), (4, 0));
}
