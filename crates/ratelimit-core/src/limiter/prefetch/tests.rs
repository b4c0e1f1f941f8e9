//! A limiter over a store whose answers are pending, on a clock that the test moves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::RwLock;

use super::block::{self, BlockSize};
use crate::{
    budget::Adjustment,
    decision::Decision,
    key::Key,
    key_set::KeySet,
    limiter::{Limiter, Verdict},
    policy::{FailureMode, Policy, Throttle},
    store::{Hit, MemoryStore, Receipt, Settlement, Store, StoreError, StoreFuture},
    time::{Clock, Timestamp},
};

/// A memory store that answers as one over a network does, and counts its calls.
#[derive(Debug)]
struct FarStore {
    store: MemoryStore,
    clock: Clock,
    /// Hits of callers.
    hits: AtomicUsize,
    /// Hits that charge a block, and refunds.
    calls: AtomicUsize,
    /// The cost of a hit that charges a block.
    block: u64,
    is_down: AtomicBool,
    is_on_several_nodes: AtomicBool,
    /// Replies to blocks and refunds are under way while a test has this locked for writing.
    replies: Arc<RwLock<()>>,
}

impl Store for FarStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<crate::store::Charged> {
        let is_block = hit.cost == self.block;
        assert!(!is_block || hit.deadline.is_none(), "a block has no caller");
        let calls = if is_block { &self.calls } else { &self.hits };
        calls.fetch_add(1, Ordering::SeqCst);
        if self.is_down.load(Ordering::SeqCst) {
            return StoreFuture::ready(Err(StoreError::TimedOut));
        }
        let decision = self.store.hit(hit);
        let replies = Arc::clone(&self.replies);
        StoreFuture::pending(async move {
            if is_block {
                let _arrived = replies.read().await;
            }
            decision.await
        })
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let (store, receipt) = (self.store.clone(), receipt.clone());
        let replies = Arc::clone(&self.replies);
        StoreFuture::pending(async move {
            let _arrived = replies.read().await;
            store.settle(&receipt, change).await
        })
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        StoreFuture::pending(self.store.reset(policy, keys))
    }

    fn decides_in_one_step(&self, _hit: &Hit<'_>) -> bool {
        !self.is_on_several_nodes.load(Ordering::SeqCst)
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
        let policy = Policy::parse("api", limits).unwrap();
        let policy = policy.with_prefetch(share).unwrap();
        Fleet {
            store: Arc::new(FarStore {
                store: MemoryStore::new().clock(clock.clone()),
                clock: clock.clone(),
                hits: AtomicUsize::new(0),
                calls: AtomicUsize::new(0),
                block: BlockSize::of(&policy).units,
                is_down: AtomicBool::new(false),
                is_on_several_nodes: AtomicBool::new(false),
                replies: Arc::default(),
            }),
            clock,
            policy,
            key: Key::new("alice").unwrap(),
        }
    }

    fn limiter(&self) -> Limiter {
        Limiter::new(Arc::clone(&self.store))
    }

    /// A fleet with a limiter that has units on hand: 300 hits in 300 ms have passed.
    async fn warm(limits: &str, share: u32) -> (Fleet, Limiter) {
        let fleet = Fleet::new(limits, share);
        let limiter = fleet.limiter();
        for _ in 0..300 {
            assert!(fleet.hit(&limiter, 1_000).await.is_allowed());
        }
        assert!(fleet.on_hand(&limiter) > 0);
        (fleet, limiter)
    }

    /// A hit, after which tasks may run and `micros` pass.
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
        // Tasks wait by tokio's clock, which the test moves as well.
        tokio::time::advance(Duration::from_micros(micros)).await;
    }

    fn hits_in_store(&self) -> usize {
        self.store.hits.load(Ordering::SeqCst)
    }

    fn calls(&self) -> usize {
        self.store.calls.load(Ordering::SeqCst)
    }

    fn on_hand(&self, limiter: &Limiter) -> u64 {
        let state = limiter.prefetch_state(Hit::new(&self.policy, &self.key));
        state.unwrap().on_hand
    }

    /// The units that the store has left of each limit, without the units on hand; the least of them.
    async fn left_in_store(&self) -> u64 {
        let hit = Hit::new(&self.policy, &self.key).cost(0);
        let peek = self.store.store.hit(hit).await.unwrap();
        peek.decision
            .limits()
            .map(|limit| limit.remaining)
            .min()
            .unwrap()
    }

    /// The units that the limiter reports as left: those of the store, and those on hand.
    async fn left(&self, limiter: &Limiter) -> u64 {
        let peek = limiter.peek(&self.policy, &self.key).await;
        peek.decision().unwrap().remaining
    }
}

#[test]
fn a_block_is_the_share_of_the_smallest_limit_and_lives_for_one_second_or_one_window() {
    for (limits, share, units, life_ms) in [
        ("100000/s", 5, 5_000, 1_000),
        ("100/s burst 1000", 5, 50, 1_000),
        ("1000/min", 5, 50, 1_000),
        ("fixed_window 4000/s", 5, 200, 1_000),
        ("fixed_window 4000/100ms", 10, 400, 100),
        ("sliding_window_counter 100000/min", 1, 1_000, 1_000),
        ("4000/s; fixed_window 100000/min", 5, 200, 1_000),
    ] {
        let policy = Policy::parse("api", limits).unwrap();
        let size = BlockSize::of(&policy.with_prefetch(share).unwrap());
        assert_eq!(
            (size.units, size.life),
            (units, life_ms * 1_000),
            "{limits}"
        );
    }
    for (limits, units) in [("60/min", 3), ("100/min", 5)] {
        let policy = Policy::parse("api", limits).unwrap();
        let size = BlockSize::of(&policy.with_prefetch(5).unwrap());
        assert_eq!((size.units, size.is_worth(1)), (units, units >= 4));
        assert!(!size.is_worth(2));
    }
    for (limits, units, millis) in [("100000/s", 5_000, 50), ("1000/h", 50, 180_000)] {
        let limit = limits.parse().unwrap();
        assert_eq!(block::refill_time(&limit, units), millis * 1_000);
    }
}

#[tokio::test(start_paused = true)]
async fn hits_on_a_hot_key_are_paid_from_memory() {
    for limits in [
        "10000/s",
        "leaky_bucket 10000/s police",
        "fixed_window 100000/10s",
        "sliding_window_counter 100000/10s",
        "10000/s; fixed_window 500000/min",
    ] {
        let fleet = Fleet::new(limits, 5);
        let limiter = fleet.limiter();
        let mut prefetched = 0;
        for _ in 0..2_000 {
            let decision = fleet.hit(&limiter, 200).await;
            assert!(decision.is_allowed(), "{limits}");
            prefetched += usize::from(decision.is_prefetched);
        }
        assert!(prefetched >= 1_980, "{limits}: {prefetched} of 2,000");
        assert!(fleet.calls() < 40, "{limits}: {} calls", fleet.calls());
        assert_eq!(fleet.hits_in_store() + prefetched, 2_000, "{limits}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_hot_after_sixteen_hits_within_the_life_of_a_block() {
    for (hits, micros, calls) in [(15, 60_000, 0), (16, 60_000, 1), (100, 67_000, 0)] {
        let fleet = Fleet::new("1000/s", 5);
        let limiter = fleet.limiter();
        for _ in 0..hits {
            assert!(!fleet.hit(&limiter, micros).await.is_prefetched);
        }
        assert_eq!(fleet.calls(), calls, "{hits} hits, one each {micros} us");
    }
}

/// The hits of eight instances at three times the limit for three whole seconds, after one second. Returns the permille of
/// the limit that passed, and the calls for each hundred hits that passed.
async fn saturated(limits: &str) -> (usize, usize) {
    const FROM: u64 = 601_000_000;
    let fleet = Fleet::new(limits, 5);
    let limiters: Vec<Limiter> = (0..8).map(|_| fleet.limiter()).collect();
    let mut passed = Vec::new();
    for limiter in limiters.iter().cycle() {
        if fleet.clock.now().as_micros() >= FROM + 3_000_000 {
            break;
        }
        let decision = fleet.hit(limiter, 83).await;
        if decision.is_allowed() {
            passed.push(decision.now);
        }
    }
    passed.sort();
    let replay = Clock::manual(Timestamp::from_secs(600));
    let exact = MemoryStore::new().clock(replay.clone());
    for now in &passed {
        replay.set(*now);
        let hit = Hit::new(&fleet.policy, &fleet.key);
        let decision = exact.hit(hit).await.unwrap();
        assert!(decision.is_allowed(), "{limits}: a hit beyond the limit");
    }
    let steady = passed.iter().filter(|now| now.as_micros() >= FROM).count();
    let calls = fleet.calls() + fleet.hits_in_store();
    (steady / 12, (100 * calls + passed.len() / 2) / passed.len())
}

#[tokio::test(start_paused = true)]
async fn eight_instances_use_95_percent_of_a_saturated_limit_and_no_hit_passes_beyond_it() {
    for (limits, permille, calls) in [
        ("4000/s", 1_000, 216),
        ("fixed_window 4000/s", 1_000, 6),
        ("sliding_window_counter 4000/s", 999, 227),
        ("4000/s; fixed_window 1000000/min", 1_000, 216),
    ] {
        // The numbers of `docs/guides/prefetch.md`.
        assert_eq!(saturated(limits).await, (permille, calls), "{limits}");
    }
}

/// The table of `docs/guides/prefetch.md`: 16,000 hits in a second on one key, the first ones included.
#[tokio::test(start_paused = true)]
async fn the_share_and_the_number_of_instances_decide_how_many_hits_a_call_serves() {
    for (limits, instances, expected) in [
        ("20000/s", 1, [137, 432]),
        ("20000/s", 4, [95, 179]),
        ("20000/s", 16, [42, 45]),
        ("fixed_window 20000/s", 1, [164, 484]),
        ("fixed_window 20000/s", 4, [108, 190]),
        ("fixed_window 20000/s", 16, [45, 55]),
    ] {
        for (share, expected) in [1, 5].into_iter().zip(expected) {
            let fleet = Fleet::new(limits, share);
            let limiters: Vec<Limiter> = (0..instances).map(|_| fleet.limiter()).collect();
            for limiter in limiters.iter().cycle().take(16_000) {
                assert!(fleet.hit(limiter, 62).await.is_allowed());
            }
            let hits = 16_000 / (fleet.calls() + fleet.hits_in_store());
            assert_eq!(hits, expected, "{limits}, {instances} instances, {share} %");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_instance_spends_every_unit_of_a_window() {
    let fleet = Fleet::new("fixed_window 1000/h", 10);
    let limiter = fleet.limiter();
    let mut passed = 0;
    for _ in 0..1_500 {
        passed += usize::from(fleet.hit(&limiter, 1_000).await.is_allowed());
    }
    assert_eq!(passed, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_block_that_does_not_fit_ends_prefetching_until_the_key_is_hot_again() {
    let fleet = Fleet::new("fixed_window 1000/s", 30);
    let limiter = fleet.limiter();
    for _ in 0..1_000 {
        assert!(fleet.hit(&limiter, 100).await.is_allowed());
    }
    // Blocks of 300 units fit three times.
    // The fourth is denied.
    assert_eq!(fleet.calls(), 4);
    assert!(fleet.hits_in_store() >= 100);
    fleet.pass_time(1_000_000).await;
    let mut prefetched = 0;
    for _ in 0..100 {
        prefetched += usize::from(fleet.hit(&limiter, 100).await.is_prefetched);
    }
    assert_eq!(prefetched, 84);
}

/// The 16 hits before the block are refilled first. The bucket refills ten units in a millisecond.
#[tokio::test(start_paused = true)]
async fn units_that_a_bucket_has_refilled_expire() {
    let fleet = Fleet::new("10000/s", 10);
    let limiter = fleet.limiter();
    for _ in 0..16 {
        fleet.hit(&limiter, 0).await;
    }
    assert_eq!(fleet.on_hand(&limiter), 1_000);
    for (millis, left) in [(0, 1_000), (10, 914), (40, 514), (49, 24), (3, 0)] {
        fleet.clock.advance(Duration::from_millis(millis));
        // The margin for a slow clock and rounding take one or two more units.
        assert_eq!(fleet.on_hand(&limiter), left);
    }
}

#[tokio::test(start_paused = true)]
async fn unspent_units_are_returned_after_a_second() {
    for limits in [
        "fixed_window 10000/h",
        "sliding_window_counter 10000/h",
        "10000/h",
        "10000/h; fixed_window 20000/h",
    ] {
        let (fleet, limiter) = Fleet::warm(limits, 10).await;
        assert!(fleet.left_in_store().await < 9_000, "{limits}");
        for _ in 0..4 {
            fleet.pass_time(600_000).await;
        }
        assert_eq!(fleet.on_hand(&limiter), 0, "{limits}");
        let left = fleet.left_in_store().await;
        assert!((9_700..=9_710).contains(&left), "{limits}: {left}");
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_limiter_returns_its_units() {
    // A bucket keeps the unit that it has refilled in part.
    for (limits, left) in [
        ("sliding_window_counter 10000/h", 9_700),
        ("10000/h", 9_699),
    ] {
        let (fleet, limiter) = Fleet::warm(limits, 10).await;
        assert!(fleet.left_in_store().await < 9_000);
        drop(limiter);
        fleet.pass_time(0).await;
        assert_eq!(fleet.left_in_store().await, left, "{limits}");
    }
}

#[tokio::test(start_paused = true)]
async fn return_prefetched_returns_all_units() {
    for (limits, left) in [
        ("sliding_window_counter 10000/h", 9_700),
        ("10000/h", 9_699),
    ] {
        let (fleet, limiter) = Fleet::warm(limits, 10).await;
        limiter.return_prefetched().await;
        assert_eq!(fleet.left_in_store().await, left, "{limits}");
        assert_eq!(fleet.on_hand(&limiter), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn return_prefetched_returns_the_units_of_a_call_that_is_under_way() {
    let fleet = Fleet::new("fixed_window 10000/h", 10);
    let limiter = fleet.limiter();
    let held = fleet.store.replies.write().await;
    for _ in 0..20 {
        assert!(!fleet.hit(&limiter, 1_000).await.is_prefetched);
    }
    assert_eq!((fleet.calls(), fleet.left_in_store().await), (1, 8_980));
    let arrive = async {
        tokio::task::yield_now().await;
        drop(held);
    };
    tokio::join!(limiter.return_prefetched(), arrive);
    assert_eq!(fleet.left_in_store().await, 9_980);
}

#[tokio::test(start_paused = true)]
async fn return_prefetched_waits_for_the_units_that_an_idle_key_returns() {
    let (fleet, limiter) = Fleet::warm("fixed_window 10000/h", 10).await;
    let held = fleet.store.replies.write().await;
    // The block has expired, and its refund is under way.
    fleet.pass_time(2_000_000).await;
    fleet.pass_time(0).await;
    assert!(fleet.left_in_store().await < 9_700);
    let arrive = async {
        tokio::task::yield_now().await;
        drop(held);
    };
    tokio::join!(limiter.return_prefetched(), arrive);
    assert_eq!(fleet.left_in_store().await, 9_700);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_charged_in_the_store_and_refunded_there() {
    let (fleet, limiter) = Fleet::warm("10000/h", 10).await;
    let (on_hand, in_store) = (fleet.on_hand(&limiter), fleet.left_in_store().await);
    let hit = Hit::new(&fleet.policy, &fleet.key).cost(3);
    let (verdict, reservation) = limiter.reserve(hit).await;
    assert!(!verdict.decision().unwrap().is_prefetched);
    assert_eq!(fleet.left_in_store().await, in_store - 3);

    reservation.unwrap().settle(1).await.unwrap();

    assert_eq!(fleet.left_in_store().await, in_store - 1);
    assert_eq!(fleet.on_hand(&limiter), on_hand);
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_rest_of_a_block_is_sent_to_the_store_and_not_split() {
    let (fleet, limiter) = Fleet::warm("fixed_window 1000/h", 20).await;
    let (on_hand, in_store) = (fleet.on_hand(&limiter), fleet.left_in_store().await);
    let cost = on_hand + 1;
    let large = limiter.check_cost(&fleet.policy, &fleet.key, cost).await;
    assert!(!large.decision().unwrap().is_prefetched);
    assert_eq!(large.is_allowed(), in_store >= cost);
    assert_eq!(fleet.on_hand(&limiter), on_hand);
    let all = on_hand + in_store;
    let all = limiter.check_cost(&fleet.policy, &fleet.key, all).await;
    assert!(!all.is_allowed(), "a hit is not paid in two parts");
}

#[tokio::test(start_paused = true)]
async fn a_reset_drops_the_units_on_hand() {
    let (fleet, limiter) = Fleet::warm("fixed_window 1000/h", 10).await;
    limiter.reset(&fleet.policy, &fleet.key).await.unwrap();
    fleet.pass_time(1_000).await;
    assert_eq!(fleet.left_in_store().await, 1_000);
    assert!(!fleet.hit(&limiter, 0).await.is_prefetched);
    assert_eq!(fleet.left(&limiter).await, 999);
}

#[tokio::test(start_paused = true)]
async fn after_a_reset_by_another_instance_at_most_the_units_on_hand_pass_beyond_the_limit() {
    let (fleet, limiter) = Fleet::warm("fixed_window 1000/h", 10).await;
    let on_hand = fleet.on_hand(&limiter);
    let other = fleet.limiter();
    other.reset(&fleet.policy, &fleet.key).await.unwrap();
    let mut passed = 0;
    for _ in 0..3_000 {
        passed += u64::from(fleet.hit(&limiter, 1_000).await.is_allowed());
    }
    assert_eq!(passed, 1_000 + on_hand);
}

#[tokio::test(start_paused = true)]
async fn a_peek_adds_the_units_on_hand() {
    let (fleet, limiter) = Fleet::warm("fixed_window 10000/h", 10).await;
    assert_eq!(fleet.left(&limiter).await, 9_700);
}

#[tokio::test(start_paused = true)]
async fn remaining_is_what_the_store_had_left_and_the_units_of_the_block() {
    let fleet = Fleet::new("fixed_window 10000/h", 10);
    let limiter = fleet.limiter();
    for spent in 1..3_000 {
        let decision = fleet.hit(&limiter, 100).await;
        assert_eq!(
            (decision.limit, decision.remaining),
            (10_000, 10_000 - spent)
        );
        let until_reset = Duration::from_micros(3_000_000_000 - 100 * (spent - 1));
        // The margin for a slow clock.
        let difference = until_reset.abs_diff(decision.reset_after);
        assert!(difference <= Duration::from_millis(1), "{difference:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn units_on_hand_are_spent_in_an_outage_for_a_second_at_most() {
    let (fleet, limiter) = Fleet::warm("fixed_window 100000/h", 10).await;
    fleet.store.is_down.store(true, Ordering::SeqCst);
    let mut passed = 0;
    while let Verdict::Checked(decision) = limiter.check(&fleet.policy, &fleet.key).await {
        assert!(decision.is_prefetched);
        passed += 1;
        fleet.pass_time(1_000).await;
    }
    assert!((100..=1_000).contains(&passed), "{passed}");
    assert!(fleet.on_hand(&limiter) == 0);
}

#[tokio::test(start_paused = true)]
async fn the_units_of_a_call_without_a_reply_are_never_spent() {
    let fleet = Fleet::new("fixed_window 1000/h", 10);
    let limiter = fleet.limiter().failure_mode(FailureMode::Closed);
    for _ in 0..15 {
        fleet.hit(&limiter, 1_000).await;
    }
    let check = limiter.check(&fleet.policy, &fleet.key).await;
    assert!(check.is_allowed());
    fleet.store.is_down.store(true, Ordering::SeqCst);
    fleet.pass_time(1_000).await;
    assert_eq!((fleet.calls(), fleet.on_hand(&limiter)), (1, 0));
    assert!(!limiter.check(&fleet.policy, &fleet.key).await.is_allowed());
    // Prefetching goes on when the key is hot again.
    fleet.store.is_down.store(false, Ordering::SeqCst);
    for _ in 0..20 {
        fleet.hit(&limiter, 1_000).await;
    }
    assert!(fleet.on_hand(&limiter) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_block_is_not_bound_by_the_deadline_of_the_hit_before_it() {
    let fleet = Fleet::new("fixed_window 1000/h", 10);
    let limiter = fleet.limiter();
    let hit = Hit::new(&fleet.policy, &fleet.key);
    for _ in 0..16 {
        let hit = hit.deadline(Instant::now() + Duration::from_secs(60));
        assert!(limiter.check_hit(hit).await.is_allowed());
    }
    fleet.pass_time(0).await;
    assert_eq!(fleet.on_hand(&limiter), 100);
}

#[tokio::test(start_paused = true)]
async fn a_block_that_arrives_after_its_life_is_not_spent() {
    let fleet = Fleet::new("10000/s", 5);
    let limiter = fleet.limiter();
    let held = fleet.store.replies.write().await;
    for _ in 0..16 {
        fleet.hit(&limiter, 0).await;
    }
    assert_eq!(fleet.calls(), 1);
    fleet.pass_time(60_000).await;
    drop(held);
    fleet.pass_time(0).await;
    assert!(!fleet.hit(&limiter, 0).await.is_prefetched);
    assert_eq!(fleet.on_hand(&limiter), 0);
}

#[tokio::test(start_paused = true)]
async fn keys_on_several_nodes_are_sent_to_the_store() {
    let fleet = Fleet::new("10000/s", 5);
    let limiter = fleet.limiter();
    fleet
        .store
        .is_on_several_nodes
        .store(true, Ordering::SeqCst);
    for _ in 0..100 {
        assert!(!fleet.hit(&limiter, 100).await.is_prefetched);
    }
    assert_eq!(fleet.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_block_never_uses_the_headroom_and_beyond_the_limit_every_hit_is_sent() {
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
        assert!(!decision.is_prefetched || (passed <= 1_000 && !decision.is_over));
    }
    assert_eq!(passed, 1_100);
}

#[tokio::test(start_paused = true)]
async fn changed_limits_do_not_share_units_with_the_old_ones() {
    let (fleet, limiter) = Fleet::warm("fixed_window 10000/h", 10).await;
    let changed = Policy::parse("api", "fixed_window 20000/h").unwrap();
    let changed = changed.with_prefetch(10).unwrap();
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
