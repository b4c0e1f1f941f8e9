//! Joint hits over a network: the deny cache, dropped callers, and members on several nodes of a cluster.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use ratelimit_core::{
    Clock, Key, KeySet, Limiter, MemoryStore, Policy, RedisConfig, Timestamp,
    store::{
        Adjustment, Charged, Hit, JointHit, JointRole, Receipt, Settlement, Store, StoreError,
        StoreFuture,
    },
};
use ratelimit_tests::{
    chaos::{TestCluster, eventually},
    random::Random,
    redis::{TestRedis, connected},
};

use crate::stores::{TestStore, key, policy, told};

/// Longer than any pause of a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A store that counts the joint hits that it is sent, and their members.
#[derive(Debug)]
struct Counted {
    store: Arc<dyn Store>,
    joint_hits: Arc<AtomicU64>,
    members: Arc<AtomicU64>,
}

impl Store for Counted {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        self.store.hit(hit)
    }

    fn hit_joint(&self, members: &[JointHit<'_>]) -> StoreFuture<Vec<Charged>> {
        self.joint_hits.fetch_add(1, Ordering::SeqCst);
        let count = u64::try_from(members.len()).unwrap();
        self.members.fetch_add(count, Ordering::SeqCst);
        self.store.hit_joint(members)
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        self.store.reset(policy, keys)
    }

    fn manual_clock(&self) -> Option<Clock> {
        self.store.manual_clock()
    }
}

fn must<'a>(policy: &'a Policy, key: &'a Key) -> JointHit<'a> {
    JointHit::new(Hit::new(policy, key))
}

async fn left(store: &dyn Store, policy: &Policy, key: &Key) -> u64 {
    let peeked = store.hit(Hit::new(policy, key).cost(0)).await;
    peeked.unwrap().remaining
}

#[tokio::test]
async fn members_that_only_watch_pass_though_all_are_known_to_be_denied() {
    let redis = TestRedis::start().await;
    let limiter = Limiter::new(redis.store(Clock::system()).await);
    let (shadow, alice) = (policy("watched", "fixed_window 1/366d"), key("watched"));
    let members = [must(&shadow, &alice).role(JointRole::Watch)];

    for charged in [true, false, false, false] {
        let verdict = limiter.check_joint(&members).unwrap().await;

        assert!(verdict.is_allowed);
        assert_eq!(verdict.members[0].is_charged, charged);
    }
}

#[tokio::test]
async fn repeated_denials_are_answered_from_the_deny_cache() {
    let redis = TestRedis::start().await;
    let store = TestStore::redis(&redis).await;
    let (joint_hits, sent) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let limiter = Limiter::new(Counted {
        store: Arc::clone(&store.store),
        joint_hits: Arc::clone(&joint_hits),
        members: Arc::clone(&sent),
    });
    let (user, route) = (policy("user", "9/h"), policy("route", "1/h"));
    let (alice, search) = (key("alice"), key("search"));
    let members = [must(&user, &alice), must(&route, &search)];

    let mut allowed = Vec::new();
    for _ in 0..6 {
        let joint = limiter.check_joint(&members).unwrap().await;
        let denied = joint.members[1].verdict.decision().unwrap();
        assert_eq!(denied.is_allowed(), joint.is_allowed);
        allowed.push(joint.is_allowed);
    }

    assert_eq!(allowed, [true, false, false, false, false, false]);
    // The first call makes the cache, so the denial of the second is the first that it holds.
    assert_eq!(joint_hits.load(Ordering::SeqCst), 2);
    // A watcher that is known to be denied is not sent, and the others are.
    let watched = [members[0], members[1].role(JointRole::Watch)];
    let joint = limiter.check_joint(&watched).unwrap().await;
    assert!(joint.is_allowed);
    assert_eq!(joint_hits.load(Ordering::SeqCst), 3);
    assert_eq!(sent.load(Ordering::SeqCst), 5);
    assert_eq!(left(&*store.store, &user, &alice).await, 7);
}

#[tokio::test]
async fn a_denial_behind_another_member_is_not_cached() {
    let redis = TestRedis::start().await;
    let store = TestStore::redis(&redis).await;
    let limiter = Limiter::new(store.store);
    let (policy, key) = (policy("p", "5/h"), key("k"));
    let pair = [
        JointHit::new(Hit::new(&policy, &key).cost(3)),
        JointHit::new(Hit::new(&policy, &key).cost(3)),
    ];
    for _ in 0..3 {
        assert!(!limiter.check_joint(&pair).unwrap().await.is_allowed);
    }

    assert!(limiter.check_cost(&policy, &key, 3).await.is_allowed());
}

#[tokio::test]
async fn a_joint_hit_that_is_dropped_is_charged_as_a_whole_or_not_at_all_and_holds_no_slot() {
    let redis = TestRedis::start().await;
    let store = connected(redis.config().timeout(PATIENCE)).await;
    let limiter = Limiter::new(store).without_deny_cache();
    let slots = policy("slots", "concurrency 2 lease 10min; fixed_window 50/366d");
    let rate = policy("rate", "fixed_window 50/366d");
    for polls in 1..12 {
        let (one, two) = (key(&format!("one{polls}")), key(&format!("two{polls}")));
        let members = [must(&slots, &one), must(&rate, &two)];
        let mut check = Box::pin(limiter.check_joint(&members).unwrap());
        let mut polled = 0;
        let held = poll_fn(|cx| {
            polled += 1;
            match check.as_mut().poll(cx) {
                Poll::Ready(joint) => Poll::Ready(Some(joint.is_allowed)),
                Poll::Pending if polled == polls => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        drop(check);
        if held.is_some() {
            continue;
        }
        eventually("charged alike, and the slot is free", || async {
            let of_slots = limiter.peek(&slots, &one).await;
            let of_slots = of_slots.decision().unwrap().limits();
            let of_slots: Vec<u64> = of_slots.map(|limit| limit.remaining).collect();
            let of_rate = limiter.peek(&rate, &two).await;
            let of_rate = of_rate.decision().unwrap().remaining;
            of_slots[0] == 2 && of_slots[1] == of_rate
        })
        .await;
    }
}

#[tokio::test]
async fn members_of_several_keys_get_the_same_answers_in_memory_and_in_redis() {
    let redis = TestRedis::start().await;
    let subjects = TestStore::all(&redis).await;
    let policies = [
        policy(
            "a",
            "3/min; fixed_window 5/min by ip; sliding_window_log 20/h",
        ),
        policy(
            "b",
            "sliding_window_counter 4/min by ip; leaky_bucket 3/min police",
        ),
        policy(
            "c",
            "concurrency 3 lease 20s; 9/min by ip; penalty_box 3/min for 5s",
        ),
        policy("d", "4/min by ip"),
    ];
    let roles = [
        JointRole::Must,
        JointRole::Must,
        JointRole::Any,
        JointRole::Watch,
    ];
    let mut random = Random::new(7);
    let (mut now_us, mut outcomes) = (1_700_000_000_000_000, [0_u32; 2]);
    for step in 0..600 {
        now_us += random.range(0, 8_000_000);
        let hits: Vec<(usize, KeySet, u64, JointRole)> = (0..random.range(1, 5))
            .map(|_| {
                let user = key(&format!("user{}", random.range(0, 1)));
                let ip = key(&format!("ip{}", random.range(0, 1)));
                let chosen = random.one_of(&[0, 1, 2, 3]);
                let keys = KeySet::new(user).with("ip", ip);
                (chosen, keys, random.range(0, 3), random.one_of(&roles))
            })
            .collect();
        let members: Vec<JointHit<'_>> = hits
            .iter()
            .map(|(chosen, keys, cost, role)| {
                let slot = random.range(1, 9);
                let hit = Hit::for_keys(&policies[*chosen], keys)
                    .cost(*cost)
                    .slot(slot);
                JointHit::new(hit).role(*role)
            })
            .collect();
        let mut answers = Vec::new();
        for subject in &subjects {
            subject.clock.set(Timestamp::from_micros(now_us));
            let decisions = subject.store.hit_joint(&members).await.unwrap();
            answers.push(
                decisions
                    .iter()
                    .map(|charged| told(charged))
                    .collect::<Vec<_>>(),
            );
        }
        for decision in &answers[0] {
            outcomes[usize::from(decision.1.answer.is_allowed())] += 1;
        }
        assert_eq!(answers[0], answers[1], "step {step}: {members:?}");
    }
    assert!(outcomes.iter().all(|count| *count > 100), "{outcomes:?}");
}

/// A store that does not answer while it is down.
#[derive(Debug)]
struct Outage {
    store: MemoryStore,
    is_down: Arc<AtomicBool>,
}

impl Store for Outage {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        if self.is_down.load(Ordering::SeqCst) {
            return StoreFuture::ready(Err(StoreError::Unavailable { source: None }));
        }
        self.store.hit(hit)
    }

    fn hit_joint(&self, members: &[JointHit<'_>]) -> StoreFuture<Vec<Charged>> {
        if self.is_down.load(Ordering::SeqCst) {
            return StoreFuture::ready(Err(StoreError::Unavailable { source: None }));
        }
        self.store.hit_joint(members)
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        if self.is_down.load(Ordering::SeqCst) {
            return StoreFuture::ready(Err(StoreError::Unavailable { source: None }));
        }
        self.store.settle(receipt, change)
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        self.store.reset(policy, keys)
    }
}

#[tokio::test]
async fn in_an_outage_joint_hits_continue_from_the_last_reply_and_are_charged_afterwards() {
    let (store, is_down) = (MemoryStore::new(), Arc::<AtomicBool>::default());
    let limiter = Limiter::new(Outage {
        store: store.clone(),
        is_down: Arc::clone(&is_down),
    });
    let (few, many) = (
        policy("few", "fixed_window 5/366d"),
        policy("many", "fixed_window 9/366d"),
    );
    let key = key("k");
    let members = [must(&many, &key), must(&few, &key)];
    let passes = async || limiter.check_joint(&members).unwrap().await.is_allowed;
    for _ in 0..3 {
        assert!(passes().await);
    }

    is_down.store(true, Ordering::SeqCst);
    let local = [passes().await, passes().await, passes().await];
    is_down.store(false, Ordering::SeqCst);

    assert_eq!(local, [true, true, false]);
    eventually("the store is charged for what passed", || async {
        left(&store, &few, &key).await == 0 && left(&store, &many, &key).await == 4
    })
    .await;
    assert!(!passes().await);
    assert_eq!(left(&store, &many, &key).await, 4);
}

/// A key whose budgets live on one of the masters.
fn key_on(cluster: &TestCluster, master: usize) -> Key {
    let names = (0..).map(|number| format!("k{number}"));
    let mut here = names.filter(|name| cluster.master_of(format!("{{key:{name}}}")) == master);
    key(&here.next().expect("some key lives there"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_on_several_nodes_get_the_answers_of_one_store() {
    let cluster = TestCluster::start_masters().await;
    let clock = Clock::manual(Timestamp::from_secs(1_700_000_000));
    let config = RedisConfig::new(&cluster.url()).unwrap();
    let apart = connected(config.timeout(PATIENCE).clock(clock.clone())).await;
    let together = MemoryStore::new().clock(clock.clone());
    let keys = [
        key_on(&cluster, 0),
        key_on(&cluster, 1),
        key_on(&cluster, 2),
    ];
    let policies = [
        policy("a", "3/min; sliding_window_log 100/h"),
        policy("b", "fixed_window 5/min"),
        policy("c", "sliding_window_counter 2/min"),
    ];
    let roles = [
        JointRole::Must,
        JointRole::Any,
        JointRole::Any,
        JointRole::Watch,
    ];
    let mut denied = 0;
    for (step, turn) in (0..60_usize).zip(0_u64..) {
        clock.advance(Duration::from_millis(turn * 1_373 % 20_000));
        let members: Vec<JointHit<'_>> = (0..=(step % 4))
            .map(|number| {
                let (policy, key) = (
                    &policies[(step + number) % 3],
                    &keys[(step / 2 + number) % 3],
                );
                let role = roles[(step / 3 + number) % 4];
                JointHit::new(Hit::new(policy, key).cost(1 + turn % 2)).role(role)
            })
            .collect();

        let expected = together.hit_joint(&members).await.unwrap();
        let decisions = apart.hit_joint(&members).await.unwrap();

        for (index, (decision, expected)) in decisions.iter().zip(&expected).enumerate() {
            let place = format!("member {index} of step {step}: {members:?}");
            assert_eq!(decision.is_allowed(), expected.is_allowed(), "{place}");
            assert_eq!(decision.remaining, expected.remaining, "{place}");
            denied += u32::from(!decision.is_allowed());
        }
    }
    assert!(denied > 10, "{denied} denials prove little");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_on_one_node_refunds_the_members_on_others() {
    let cluster = TestCluster::start_masters().await;
    let config = RedisConfig::new(&cluster.url()).unwrap();
    let store = connected(config.timeout(PATIENCE)).await;
    let (many, one) = (
        policy("many", "fixed_window 9/366d"),
        policy("one", "fixed_window 1/366d"),
    );
    let (here, there) = (key_on(&cluster, 0), key_on(&cluster, 1));
    let members = [must(&many, &here), must(&one, &there)];
    store.hit_joint(&members).await.unwrap();

    for _ in 0..5 {
        let denied = store.hit_joint(&members).await.unwrap();

        assert!(denied[0].is_allowed() && !denied[1].is_allowed());
        assert_eq!(denied[0].remaining, 8);
    }
    eventually("the charge is refunded", || async {
        left(&store, &many, &here).await == 8
    })
    .await;
}
