use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::{
    budget::Adjustment,
    key::Key,
    key_set::KeySet,
    limiter::{Check, Verdict},
    load_signal::LoadSignal,
    policy::{FailureMode, Overdraft},
    store::{Charged, MemoryStore, Receipt, Settlement, Store, StoreFuture},
};

/// A store that decides when it is asked, and answers when it is waited for.
#[derive(Clone, Debug)]
struct RemoteStore {
    store: MemoryStore,
    clock: Clock,
    params: Arc<AtomicU64>,
}

impl Store for RemoteStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        self.params.fetch_add(1, Ordering::SeqCst);
        StoreFuture::pending(self.store.hit(hit))
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        StoreFuture::pending(self.store.settle(receipt, change))
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        StoreFuture::pending(self.store.reset(policy, keys))
    }

    fn manual_clock(&self) -> Option<Clock> {
        Some(self.clock.clone())
    }
}

struct Scene {
    store: RemoteStore,
    limiter: Limiter,
}

impl Scene {
    /// A limiter that has waited for its store once.
    async fn new() -> Scene {
        let clock = Clock::manual(Timestamp::from_secs(600));
        let store = RemoteStore {
            store: MemoryStore::new().clock(clock.clone()),
            clock,
            params: Arc::default(),
        };
        let limiter = Limiter::new(store.clone());
        let scene = Scene { store, limiter };
        let _ = scene.limiter.peek(&policy("1/s"), &key("a")).await;
        scene
    }

    async fn hit(&self, policy: &Policy, cost: u64) -> Decision {
        checked(self.limiter.check_cost(policy, &key("a"), cost)).await
    }

    /// Whether a hit was answered without the store.
    async fn recalls(&self, policy: &Policy, cost: u64) -> bool {
        let before = self.params();
        assert!(!self.hit(policy, cost).await.is_allowed());
        self.params() == before
    }

    fn params(&self) -> u64 {
        self.store.params.load(Ordering::SeqCst)
    }

    fn wait(&self, millis: u64) {
        self.store.clock.advance(Duration::from_millis(millis));
    }
}

async fn checked(check: Check) -> Decision {
    match check.await {
        Verdict::Checked(decision) => decision,
        unchecked @ Verdict::Unchecked { .. } => panic!("{unchecked:?}"),
    }
}

fn policy(limits: &str) -> Policy {
    Policy::parse("denials", limits).unwrap()
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

#[tokio::test]
async fn a_denial_is_told_again_with_what_is_left_of_its_waits() {
    let scene = Scene::new().await;
    let bucket = policy("2/s; fixed_window 100/h");
    scene.hit(&bucket, 2).await;
    let denied = scene.hit(&bucket, 1).await;

    scene.wait(300);
    let params = scene.params();
    let again = scene.hit(&bucket, 1).await;

    assert_eq!(scene.params(), params);
    assert_eq!(again.retry_after(), Some(Duration::from_millis(200)));
    assert_eq!(again, denied.aged_by(Duration::from_millis(300)));
    assert_eq!(again.now, scene.store.clock.now());
    assert_eq!(again, {
        let asking = scene.limiter.clone().without_deny_cache();
        let mut fresh = checked(asking.check(&bucket, &key("a"))).await;
        fresh.remaining = again.remaining;
        fresh
    });
}

#[tokio::test]
async fn a_hit_passes_as_soon_as_its_wait_is_over() {
    let scene = Scene::new().await;
    let bucket = policy("2/s");
    scene.hit(&bucket, 2).await;
    scene.hit(&bucket, 1).await;

    scene.wait(499);
    assert!(scene.recalls(&bucket, 1).await);
    scene.wait(1);
    assert!(scene.hit(&bucket, 1).await.is_allowed());
}

#[tokio::test]
async fn a_denial_is_forgotten_after_a_second() {
    let scene = Scene::new().await;
    let window = policy("fixed_window 1/h");
    scene.hit(&window, 1).await;
    assert!(!scene.recalls(&window, 1).await);

    scene.wait(999);
    assert!(scene.recalls(&window, 1).await);
    scene.wait(1);
    assert!(!scene.recalls(&window, 1).await);
}

#[tokio::test]
async fn a_denial_is_forgotten_when_one_of_its_limits_would_allow() {
    let scene = Scene::new().await;
    let both = policy("10/s burst 1; fixed_window 1/h");
    scene.hit(&both, 1).await;
    let denied = |decision: Decision| {
        let limits = decision.limits();
        limits.filter(|limit| !limit.outcome.is_allowed()).count()
    };
    assert_eq!(denied(scene.hit(&both, 1).await), 2);

    scene.wait(99);
    assert_eq!(denied(scene.hit(&both, 1).await), 2);
    scene.wait(1);
    assert_eq!(denied(scene.hit(&both, 1).await), 1);
}

#[tokio::test]
async fn a_denial_says_nothing_of_smaller_costs_and_impossible_ones() {
    let scene = Scene::new().await;
    let window = policy("fixed_window 10/h");
    scene.hit(&window, 6).await;
    assert!(!scene.recalls(&window, 5).await);

    assert!(scene.recalls(&window, 5).await);
    assert!(scene.recalls(&window, 10).await);
    assert_eq!(scene.hit(&window, 11).await.outcome, Outcome::Impossible);
    assert!(scene.recalls(&window, 5).await);
    assert!(scene.hit(&window, 4).await.is_allowed());
}

#[tokio::test]
async fn a_hit_that_passes_drops_the_denial() {
    let scene = Scene::new().await;
    let window = policy("fixed_window 10/h");
    scene.hit(&window, 6).await;
    scene.hit(&window, 5).await;

    assert!(scene.hit(&window, 1).await.is_allowed());

    assert!(!scene.recalls(&window, 5).await);
}

#[tokio::test]
async fn a_denial_is_of_its_limits_and_of_no_others() {
    let scene = Scene::new().await;
    let (few, more) = (policy("fixed_window 1/h"), policy("fixed_window 3/h"));
    let soft = few.with_throttle(Throttle::Soft { percent: 100 }).unwrap();
    scene.hit(&few, 1).await;
    scene.hit(&few, 1).await;

    assert!(scene.recalls(&policy("fixed_window 1/h").shadow(), 1).await);
    assert!(scene.hit(&soft, 1).await.is_allowed());
    assert!(!scene.recalls(&soft, 1).await);
    assert!(scene.hit(&more, 1).await.is_allowed());
    assert!(!scene.recalls(&few, 1).await);
}

#[tokio::test]
async fn a_denial_within_the_limit_says_nothing_of_what_is_beyond() {
    let scene = Scene::new().await;
    let soft = policy("fixed_window 1/h").with_throttle(Throttle::Soft { percent: 100 });
    let (soft, alice) = (soft.unwrap(), key("a"));
    let strict = Hit::new(&soft, &alice).overdraft(Overdraft::Refused);
    assert!(checked(scene.limiter.check_hit(strict)).await.is_allowed());
    assert!(!checked(scene.limiter.check_hit(strict)).await.is_allowed());

    assert!(scene.hit(&soft, 1).await.is_allowed());
}

#[tokio::test]
async fn a_reset_drops_the_denial() {
    let scene = Scene::new().await;
    let window = policy("fixed_window 1/h");
    scene.hit(&window, 1).await;
    scene.hit(&window, 1).await;

    scene.limiter.reset(&window, &key("a")).await.unwrap();

    assert!(scene.hit(&window, 1).await.is_allowed());
}

#[tokio::test]
async fn a_denial_on_its_way_does_not_outlive_a_reset() {
    let scene = Scene::new().await;
    let window = policy("fixed_window 1/h");
    scene.hit(&window, 1).await;
    let late = scene.limiter.check(&window, &key("a"));

    scene.limiter.reset(&window, &key("a")).await.unwrap();

    assert!(!checked(late).await.is_allowed());
    assert!(scene.hit(&window, 1).await.is_allowed());
}

#[tokio::test]
async fn what_is_given_back_drops_the_denial() {
    let scene = Scene::new().await;
    let (window, alice) = (policy("fixed_window 2/h"), key("a"));
    let charge = || async {
        let (_, charge) = scene.limiter.reserve(Hit::new(&window, &alice)).await;
        charge.unwrap()
    };
    let (one, other) = (charge().await, charge().await.into_receipt());

    assert!(!scene.recalls(&window, 1).await);
    one.refund().await.unwrap();
    assert!(scene.hit(&window, 1).await.is_allowed());

    assert!(!scene.recalls(&window, 1).await);
    scene.limiter.settle(&other, 0).await.unwrap();
    assert!(scene.hit(&window, 1).await.is_allowed());
}

#[tokio::test]
async fn a_denial_under_several_keys_is_dropped_by_what_becomes_of_any() {
    let scene = Scene::new().await;
    let both = policy("fixed_window 5/h; fixed_window 1/h by ip");
    let home = |own| KeySet::new(key(own)).with("ip", key("home"));
    let (alice, bob) = (home("alice"), home("bob"));
    let asks = async |keys: &KeySet, denied: bool| {
        let before = scene.params();
        let decision = checked(scene.limiter.check_keys(&both, keys)).await;
        assert_eq!(decision.is_allowed(), !denied);
        scene.params() - before
    };
    assert_eq!(asks(&alice, false).await, 1);
    assert_eq!(asks(&alice, true).await, 1);
    assert_eq!(asks(&alice, true).await, 0);
    assert_eq!(asks(&bob, true).await, 1);

    scene.limiter.reset_keys(&both, &bob).await.unwrap();

    assert_eq!(asks(&alice, false).await, 1);
    assert_eq!(asks(&bob, true).await, 1);
    assert_eq!(asks(&home("carol"), true).await, 1);
}

#[tokio::test]
async fn denials_that_do_not_last_are_not_remembered() {
    let scene = Scene::new().await;
    let elastic = Throttle::Elastic {
        percent: 10,
        signal: LoadSignal::in_flight(1),
    };
    for policy in [
        policy("concurrency 1"),
        policy("sliding_window_log 1/h count-denied"),
        policy("fixed_window 1/h; penalty_box 9/h for 1h"),
        policy("fixed_window 1/h").with_throttle(elastic).unwrap(),
    ] {
        scene.limiter.reset(&policy, &key("a")).await.unwrap();
        assert!(scene.hit(&policy, 1).await.is_allowed());
        for _ in 0..3 {
            assert!(!scene.recalls(&policy, 1).await, "{policy}");
        }
    }
}

#[tokio::test]
async fn whoever_only_looks_is_told_by_the_store() {
    let scene = Scene::new().await;
    let (window, alice) = (policy("fixed_window 1/h"), key("a"));
    scene.hit(&window, 1).await;
    for _ in 0..3 {
        let foreseen = checked(scene.limiter.dry_run(&window, &alice, 1)).await;
        assert!(!foreseen.is_allowed());
    }

    assert!(!scene.recalls(&window, 1).await);
    let before = scene.params();
    for _ in 0..3 {
        let _ = scene.limiter.dry_run(&window, &alice, 1).await;
        let _ = scene.limiter.peek(&window, &alice).await;
    }

    assert_eq!(scene.params(), before + 6);
    assert!(scene.recalls(&window, 1).await);
}

#[tokio::test]
async fn a_denial_that_is_remembered_counts_as_any_other() {
    let scene = Scene::new().await;
    let window = policy("fixed_window 1/h");
    scene.hit(&window, 1).await;
    for _ in 0..5 {
        scene.hit(&window, 1).await;
    }
    let watched = scene.hit(&window.shadow(), 1).await;

    assert_eq!(scene.limiter.offenders("denials", 1)[0].denied, 5);
    assert_eq!(scene.limiter.shadow_offenders("denials", 1)[0].denied, 1);
    assert!(watched.admits() && !watched.is_allowed());
    assert_eq!(scene.params(), 3);
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let mut scene = Scene::new().await;
    scene.limiter = scene.limiter.without_deny_cache();
    scene.limiter = scene.limiter.failure_mode(FailureMode::Open);
    let window = policy("fixed_window 1/h");
    scene.hit(&window, 1).await;

    for _ in 0..3 {
        assert!(!scene.recalls(&window, 1).await);
    }
}

#[tokio::test]
async fn answers_that_are_there_at_once_are_not_remembered() {
    let limiter = Limiter::in_memory();
    for _ in 0..3 {
        let _ = limiter.check(&policy("1/h"), &key("a")).await;
    }

    assert!(limiter.shared.deny_cache.table.get().is_none());
}

#[tokio::test]
async fn a_flood_of_denied_keys_takes_bounded_memory() {
    let scene = Scene::new().await;
    let window = policy("fixed_window 1/h");
    for number in 0..100_000 {
        let key = key(&number.to_string());
        let _ = scene.limiter.check(&window, &key).await;
        let _ = scene.limiter.check(&window, &key).await;
    }

    let kept = scene.limiter.shared.deny_cache.table.get().unwrap().len();
    assert!((4_000..=10_000).contains(&kept), "{kept}");
}
