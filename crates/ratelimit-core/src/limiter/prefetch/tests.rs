//! A limiter over a store whose answers are pending, on a clock that the test moves.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use super::*;
use crate::{
    key::Key,
    key_set::KeySet,
    limiter::Verdict,
    policy::Throttle,
    store::{MemoryStore, PrefetchGrant, PrefetchRequest},
    time::Timestamp,
};

/// A memory store that answers as one over a network does, and counts its calls.
#[derive(Debug)]
struct FarStore {
    store: MemoryStore,
    clock: Clock,
    hits: AtomicUsize,
    calls: AtomicUsize,
    is_down: AtomicBool,
}

impl Store for FarStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision> {
        self.hits.fetch_add(1, Ordering::SeqCst);
        if self.is_down.load(Ordering::SeqCst) {
            return StoreFuture::ready(Err(StoreError::TimedOut));
        }
        StoreFuture::pending(self.store.hit(hit))
    }

    fn prefetch(&self, hit: Hit<'_>, request: PrefetchRequest) -> StoreFuture<PrefetchGrant> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.is_down.load(Ordering::SeqCst) {
            return StoreFuture::ready(Err(StoreError::TimedOut));
        }
        StoreFuture::pending(self.store.prefetch(hit, request))
    }

    fn settle(
        &self,
        receipt: &crate::store::Receipt,
        change: crate::budget::Adjustment,
    ) -> StoreFuture<crate::store::Settlement> {
        StoreFuture::pending(self.store.settle(receipt, change))
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        StoreFuture::pending(self.store.reset(policy, keys))
    }

    fn manual_clock(&self) -> Option<Clock> {
        Some(self.clock.clone())
    }
}

/// One store and its clock, with as many limiters as a test wants.
struct Fleet {
    store: Arc<FarStore>,
    clock: Clock,
    policy: Policy,
    key: Key,
}

impl Fleet {
    fn new(limits: &str, share: u32) -> Fleet {
        let clock = Clock::manual(Timestamp::from_secs(600));
        let store = FarStore {
            store: MemoryStore::new().clock(clock.clone()),
            clock: clock.clone(),
            hits: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
        };
        Fleet {
            store: Arc::new(store),
            clock,
            policy: Policy::parse("api", limits)
                .unwrap()
                .with_prefetch(share)
                .unwrap(),
            key: Key::new("alice").unwrap(),
        }
    }

    fn limiter(&self) -> Limiter {
        Limiter::new(Arc::clone(&self.store))
    }

    /// A hit, after which keepers may run and `micros` pass.
    async fn hit(&self, limiter: &Limiter, micros: u64) -> Decision {
        let verdict = limiter.check(&self.policy, &self.key).await;
        self.pass_time(micros).await;
        match verdict {
            Verdict::Checked(decision) => decision,
            other @ Verdict::Unchecked { .. } => panic!("{other:?}"),
        }
    }

    async fn pass_time(&self, micros: u64) {
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        self.clock.advance(Duration::from_micros(micros));
        // Keepers wait by tokio's clock, which the test moves as well.
        tokio::time::advance(Duration::from_micros(micros)).await;
    }

    fn hits_in_store(&self) -> usize {
        self.store.hits.load(Ordering::SeqCst)
    }

    /// What the store has left, without the units on hand.
    async fn left_in_store(&self) -> u64 {
        let hit = Hit::new(&self.policy, &self.key).cost(0);
        self.store.store.hit(hit).await.unwrap().remaining
    }
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_is_decided_from_memory() {
    for limits in [
        "10000/s",
        "leaky_bucket 10000/s police",
        "fixed_window 100000/10s",
        "sliding_window_counter 100000/10s",
        "10000/s; fixed_window 500000/min",
    ] {
        let fleet = Fleet::new(limits, 5);
        let limiter = fleet.limiter();
        let (mut prefetched, mut of_the_last) = (0, 0);
        for round in 0..2_000 {
            let decision = fleet.hit(&limiter, 200).await;
            assert!(decision.is_allowed(), "{limits}");
            prefetched += usize::from(decision.is_prefetched);
            of_the_last += usize::from(decision.is_prefetched && round >= 1_000);
        }
        assert!(
            of_the_last >= 980,
            "{limits}: {of_the_last} of the last 1,000"
        );
        let calls = fleet.store.calls.load(Ordering::SeqCst);
        assert!(calls < 60, "{limits}: {calls} calls");
        assert_eq!(fleet.hits_in_store() + prefetched, 2_000, "{limits}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_hot_is_decided_as_without_prefetching() {
    let fleet = Fleet::new("1000/s", 5);
    let limiter = fleet.limiter();
    for _ in 0..50 {
        assert!(!fleet.hit(&limiter, 60_000).await.is_prefetched);
    }
    assert_eq!(fleet.store.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn several_limiters_never_let_more_pass_than_the_limit_and_nearly_all_of_it() {
    for limits in [
        "2000/s",
        "fixed_window 2000/s",
        "sliding_window_counter 2000/s",
    ] {
        let fleet = Fleet::new(limits, 5);
        let limiters: Vec<Limiter> = (0..4).map(|_| fleet.limiter()).collect();
        let start = fleet.clock.now();
        let (mut passed, mut exact) = (Vec::new(), 0);
        for round in 0..15_000_u64 {
            let limiter = &limiters[usize::try_from(round % 4).unwrap()];
            let decision = fleet.hit(limiter, 200).await;
            assert!(decision.remaining <= decision.limit);
            if decision.is_allowed() {
                passed.push(decision.now);
            } else {
                assert!(decision.retry_after() > Some(Duration::ZERO));
            }
            exact += usize::from(!decision.is_prefetched);
        }
        // The exact memory store lets every one of them pass at its time (law 1).
        let replay = Clock::manual(start);
        let store = MemoryStore::new().clock(replay.clone());
        passed.sort();
        for now in &passed {
            replay.set(*now);
            let hit = Hit::new(&fleet.policy, &fleet.key);
            assert!(store.hit(hit).await.unwrap().is_allowed(), "{limits}");
        }
        // 3 s at 5,000 hits a second: windows give 2,000 each second, the bucket its capacity beside them.
        let most = if limits.starts_with("2000") {
            8_000
        } else {
            6_000
        };
        assert!(passed.len() <= most, "{limits}: {}", passed.len());
        let least = if limits.starts_with("sliding") {
            most * 90 / 100
        } else {
            most * 97 / 100
        };
        assert!(
            passed.len() >= least,
            "{limits}: {} of {most}",
            passed.len()
        );
        assert!(exact < 5_000, "{limits}: {exact} hits were asked");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_drops_the_units_on_hand() {
    let fleet = Fleet::new("fixed_window 1000/h", 10);
    let limiter = fleet.limiter();
    for _ in 0..100 {
        fleet.hit(&limiter, 1_000).await;
    }
    limiter.reset(&fleet.policy, &fleet.key).await.unwrap();
    fleet.pass_time(1_000).await;
    assert_eq!(fleet.left_in_store().await, 1_000);
    assert!(!fleet.hit(&limiter, 0).await.is_prefetched);
    let peek = limiter.peek(&fleet.policy, &fleet.key).await;
    assert_eq!(peek.decision().unwrap().remaining, 999);
}

#[tokio::test(start_paused = true)]
async fn units_of_a_store_that_was_emptied_are_dropped_with_the_next_answer() {
    let fleet = Fleet::new("fixed_window 1000/h", 10);
    let (limiter, other) = (fleet.limiter(), fleet.limiter());
    for _ in 0..100 {
        fleet.hit(&limiter, 1_000).await;
    }
    other.reset(&fleet.policy, &fleet.key).await.unwrap();
    let mut passed = 0;
    for _ in 0..3_000 {
        passed += u64::from(fleet.hit(&limiter, 1_000).await.is_allowed());
    }
    // At most what was on hand passes beyond the limit.
    assert!((1_000..=1_200).contains(&passed), "{passed}");
}

#[tokio::test(start_paused = true)]
async fn return_prefetched_gives_windows_their_units_back() {
    let fleet = Fleet::new("sliding_window_counter 10000/h", 10);
    let limiter = fleet.limiter();
    for _ in 0..300 {
        assert!(fleet.hit(&limiter, 1_000).await.is_allowed());
    }
    assert!(fleet.left_in_store().await < 9_700);
    limiter.return_prefetched().await;
    assert_eq!(fleet.left_in_store().await, 9_700);
}

#[tokio::test(start_paused = true)]
async fn a_peek_adds_the_units_on_hand() {
    let fleet = Fleet::new("fixed_window 10000/h", 10);
    let limiter = fleet.limiter();
    for _ in 0..300 {
        fleet.hit(&limiter, 1_000).await;
    }
    let peek = limiter.peek(&fleet.policy, &fleet.key).await;
    assert_eq!(peek.decision().unwrap().remaining, 9_700);
}

#[tokio::test(start_paused = true)]
async fn units_on_hand_are_spent_while_the_store_is_down_and_then_the_failure_mode_decides() {
    let fleet = Fleet::new("fixed_window 100000/h", 10);
    let limiter = fleet.limiter();
    for _ in 0..300 {
        fleet.hit(&limiter, 1_000).await;
    }
    fleet.store.is_down.store(true, Ordering::SeqCst);
    assert!(fleet.hit(&limiter, 1_000).await.is_prefetched);
    for _ in 0..20_000 {
        if let Verdict::Unchecked { .. } = limiter.check(&fleet.policy, &fleet.key).await {
            return;
        }
        fleet.pass_time(100).await;
    }
    panic!("the units on hand never end");
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_the_store_and_the_units_on_hand_pay_together_passes() {
    let fleet = Fleet::new("fixed_window 1000/h", 20);
    let limiter = fleet.limiter();
    for _ in 0..300 {
        fleet.hit(&limiter, 1_000).await;
    }
    let rest = fleet.left_in_store().await;
    assert!(rest < 700, "some units are on hand");
    let all = limiter.check_cost(&fleet.policy, &fleet.key, 700).await;
    assert!(all.is_allowed(), "{all:?}");
    assert_eq!(fleet.left_in_store().await, 0);
}

#[tokio::test(start_paused = true)]
async fn slices_never_use_the_headroom_and_beyond_the_limit_every_hit_is_asked() {
    let mut fleet = Fleet::new("fixed_window 1000/h", 10);
    fleet.policy = fleet
        .policy
        .with_throttle(Throttle::Soft { percent: 10 })
        .unwrap();
    let limiter = fleet.limiter();
    let mut passed = 0;
    for _ in 0..1_500 {
        let decision = fleet.hit(&limiter, 1_000).await;
        passed += u64::from(decision.is_allowed());
        assert!(!(decision.is_prefetched && decision.is_over));
    }
    assert_eq!(passed, 1_100);
}

#[tokio::test(start_paused = true)]
async fn limits_of_a_tier_do_not_share_units_with_others() {
    let fleet = Fleet::new("fixed_window 10000/h", 10);
    let limiter = fleet.limiter();
    for _ in 0..300 {
        fleet.hit(&limiter, 1_000).await;
    }
    let changed = Policy::parse("api", "fixed_window 20000/h")
        .unwrap()
        .with_prefetch(10)
        .unwrap();
    let verdict = limiter.check(&changed, &fleet.key).await;
    assert!(!verdict.decision().unwrap().is_prefetched);
}

#[test]
fn without_a_runtime_nothing_is_prefetched() {
    let fleet = Fleet::new("10000/s", 5);
    let limiter = fleet.limiter();
    for _ in 0..100 {
        let check = std::pin::pin!(limiter.check(&fleet.policy, &fleet.key));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(verdict) = Future::poll(check, &mut context) else {
            panic!("the memory store inside is ready");
        };
        assert!(!verdict.decision().unwrap().is_prefetched);
    }
}
