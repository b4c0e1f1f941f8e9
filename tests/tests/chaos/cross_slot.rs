//! Limits of one policy whose keys live on different nodes of a cluster.

use std::time::Duration;

use ratelimit_core::{
    Clock, FailureMode, Key, KeySet, MemoryStore, Policy, RedisConfig, Timestamp, Verdict,
    store::{Hit, JointHit, Store as _, StoreError},
};
use ratelimit_tests::{
    chaos::{TestCluster, eventually, ours},
    redis::{as_asked, connected},
};
use tokio::task::block_in_place;

use crate::harness::{is_checked, key};

const BUDGET: Duration = Duration::from_secs(5);

fn config(cluster: &TestCluster) -> RedisConfig {
    let config = RedisConfig::new(&cluster.url()).expect("a valid address");
    as_asked(config).timeout(BUDGET)
}

/// A key whose budget lives on one of the masters.
fn key_on(cluster: &TestCluster, master: usize) -> Key {
    let names = (0..).map(|number| format!("k{number}"));
    let mut here = names.filter(|name| cluster.master_of(format!("{{key:{name}}}")) == master);
    key(&here.next().expect("some key lives there"))
}

fn keys(cluster: &TestCluster, own: usize, ip: usize) -> KeySet {
    KeySet::new(key_on(cluster, own)).with("ip", key_on(cluster, ip))
}

fn left(decision: &ratelimit_core::Decision) -> Vec<u64> {
    decision.limits().map(|limit| limit.remaining).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_on_different_nodes_get_the_answers_of_one_store() {
    let cluster = TestCluster::start().await;
    let clock = Clock::manual(Timestamp::from_secs(1_700_000_000));
    let apart = connected(config(&cluster).clock(clock.clone())).await;
    let together = MemoryStore::new().clock(clock.clone());
    for (number, text) in [
        "3/min; fixed_window 5/min by ip; sliding_window_log 100/h",
        "sliding_window_counter 4/min by ip; leaky_bucket 3/min police",
        "concurrency 2; 5/min by ip",
    ]
    .into_iter()
    .enumerate()
    {
        let policy = Policy::parse(&format!("apart{number}"), text).unwrap();
        let masters = [(0, 1), (1, 2), (2, 1), (0, 0)].into_iter().cycle();
        let costs = [1, 1, 2, 0, 1, 9].into_iter().cycle();
        for (step, ((own, ip), cost)) in (0..40).zip(masters.zip(costs)) {
            clock.advance(Duration::from_millis(step * 173 % 9_000));
            let keys = keys(&cluster, own, ip);
            let hit = Hit::for_keys(&policy, &keys).cost(cost).slot(step + 1);

            let expected = together.hit(hit).await.unwrap();
            let decision = apart.hit(hit).await.unwrap();

            assert_eq!(left(&decision), left(&expected), "step {step} of {text}");
            assert_eq!(decision.outcome, expected.outcome, "step {step} of {text}");
            assert_eq!(decision.binding, expected.binding, "step {step} of {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_denial_on_one_node_gives_back_what_another_was_charged() {
    let cluster = TestCluster::start().await;
    let store = connected(config(&cluster)).await;
    let policy = Policy::parse("back", "fixed_window 100/366d; fixed_window 1/366d by ip").unwrap();
    let (alice, bob) = (keys(&cluster, 0, 2), keys(&cluster, 1, 2));
    assert!(
        store
            .hit(Hit::for_keys(&policy, &alice))
            .await
            .unwrap()
            .is_allowed()
    );

    for _ in 0..5 {
        let denied = store.hit(Hit::for_keys(&policy, &bob)).await.unwrap();
        assert!(!denied.is_allowed());
        assert_eq!(left(&denied), [100, 0]);
    }

    let look = store
        .hit(Hit::for_keys(&policy, &bob).cost(0))
        .await
        .unwrap();
    assert_eq!(left(&look), [100, 0], "nothing was charged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_once_no_more_pass_than_the_shared_key_has() {
    let cluster = TestCluster::start().await;
    let store = connected(config(&cluster)).await;
    let policy =
        Policy::parse("many", "fixed_window 100/366d; fixed_window 10/366d by ip").unwrap();
    let keys = keys(&cluster, 0, 1);
    let hits: Vec<_> = (0..100)
        .map(|_| {
            let (store, policy, keys) = (store.clone(), policy.clone(), keys.clone());
            tokio::spawn(async move { store.hit(Hit::for_keys(&policy, &keys)).await })
        })
        .collect();
    let mut passed = 0;
    for hit in hits {
        passed += u64::from(hit.await.unwrap().unwrap().is_allowed());
    }

    assert_eq!(passed, 10);
    let look = store
        .hit(Hit::for_keys(&policy, &keys).cost(0))
        .await
        .unwrap();
    assert_eq!(left(&look), [90, 0], "what was refused was given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_is_gone_leaves_no_charge_on_the_others() {
    let mut cluster = TestCluster::start().await;
    let store = connected(config(&cluster).timeout(Duration::from_millis(500))).await;
    let policy = Policy::parse("gone", "fixed_window 100/d; fixed_window 100/d by ip").unwrap();
    let keys = keys(&cluster, 0, 1);
    block_in_place(|| {
        cluster.nodes[4].kill();
        cluster.nodes[1].kill();
    });

    let refused = store.hit(Hit::for_keys(&policy, &keys)).await;

    assert!(
        matches!(
            refused,
            Err(StoreError::Unavailable { .. } | StoreError::TimedOut)
        ),
        "{refused:?}"
    );
    let own = Policy::parse("gone", "fixed_window 100/d").unwrap();
    let alone = Hit::new(&own, keys.primary()).cost(0);
    eventually(
        "nothing charged",
        async || matches!(store.hit(alone).await, Ok(look) if look.remaining == 100),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_joint_hit_that_one_node_denies_is_denied_while_another_hangs() {
    let cluster = TestCluster::start_masters_behind_proxies().await;
    let config = config(&cluster).timeout(Duration::from_secs(1));
    let ours = ours(config, FailureMode::Open).await;
    let limit = Policy::parse("joint", "fixed_window 1/366d").unwrap();
    let (used_up, other) = (key_on(&cluster, 0), key_on(&cluster, 1));
    let first = ours.limiter.check(&limit, &used_up).await;
    assert!(is_checked(&first) && first.is_allowed(), "{first:?}");
    cluster.proxies[1].freeze();

    let members = [&used_up, &other].map(|key| JointHit::new(Hit::new(&limit, key)));
    let verdict = ours.limiter.check_joint(&members).unwrap().await;

    assert!(!verdict.is_allowed, "{verdict:?}");
    cluster.proxies[1].thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn uncounted_hits_of_two_nodes_are_charged_once_on_each() {
    let cluster = TestCluster::start_masters_behind_proxies().await;
    let ours = ours(config(&cluster), FailureMode::Local).await;
    let policy = Policy::parse(
        "uncounted",
        "fixed_window 100/366d; sliding_window_log 50/d by ip",
    )
    .unwrap();
    let keys = keys(&cluster, 0, 1);
    let hit = Hit::for_keys(&policy, &keys);
    let verdict = ours.limiter.check_hit(hit).await;
    assert!(is_checked(&verdict) && verdict.is_allowed(), "{verdict:?}");
    let spent = async || match ours.limiter.check_hit(hit.cost(0)).await {
        Verdict::Checked(decision) => {
            let left = left(&decision);
            Some([100 - left[0], 50 - left[1]])
        }
        _ => None,
    };
    assert_eq!(spent().await, Some([1, 1]));

    // Both nodes, then each of them: the charge on the first node is given back when the second does not answer.
    let mut expected = 1;
    for away in [&[0, 1][..], &[1], &[0]] {
        for &node in away {
            cluster.proxies[node].turn_away();
            cluster.proxies[node].reset();
        }
        eventually("decided locally", async || {
            !is_checked(&ours.limiter.check_hit(hit.cost(0)).await)
        })
        .await;
        for _ in 0..10 {
            let verdict = ours.limiter.check_hit(hit).await;
            assert!(!is_checked(&verdict) && verdict.is_allowed(), "{verdict:?}");
        }
        for &node in away {
            cluster.proxies[node].behave();
        }
        expected += 10;
        eventually("charged", async || {
            let spent = spent().await;
            spent.is_some_and(|spent| spent.iter().all(|&spent| spent >= expected))
        })
        .await;
        println!("without nodes {away:?}: {:?} spent", spent().await);
        assert_eq!(spent().await, Some([expected; 2]), "without nodes {away:?}");
    }
}
