//! A limiter over a store whose answers are pending, on a clock that the test moves.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::sync::RwLock;

use super::*;
use crate::{
    key::Key,
    key_set::KeySet,
    limiter::Verdict,
    policy::{FailureMode, Throttle},
    store::{MemoryStore, PrefetchGrant, PrefetchRequest, Settlement},
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
    /// When the store last gave units or denied a hit, and the wait of one unit after it.
    last_wait: Mutex<(Timestamp, Duration)>,
    /// Replies of calls are under way while a test has this locked for writing.
    replies: Arc<RwLock<()>>,
}

impl FarStore {
    fn new(store: MemoryStore, clock: Clock) -> FarStore {
        FarStore {
            store,
            clock,
            hits: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            last_wait: Mutex::default(),
            replies: Arc::default(),
        }
    }

    fn record_wait(&self, hit: Hit<'_>) {
        let Ok(Ok(unit)) = self.store.hit(hit.cost(1).dry_run()).try_ready() else {
            panic!("a memory store decides at once");
        };
        let unit = unit.decision;
        *lock(&self.last_wait) = (unit.now, unit.retry_after().unwrap_or_default());
    }
}

impl Store for FarStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        self.hits.fetch_add(1, Ordering::SeqCst);
        if self.is_down.load(Ordering::SeqCst) {
            return StoreFuture::ready(Err(StoreError::TimedOut));
        }
        let Ok(decision) = self.store.hit(hit).try_ready() else {
            panic!("a memory store decides at once");
        };
        if decision
            .as_ref()
            .is_ok_and(|decision| !decision.is_allowed())
        {
            self.record_wait(hit);
        }
        StoreFuture::pending(async { decision })
    }

    fn prefetch(&self, hit: Hit<'_>, request: PrefetchRequest) -> StoreFuture<PrefetchGrant> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.is_down.load(Ordering::SeqCst) {
            return StoreFuture::ready(Err(StoreError::TimedOut));
        }
        let grant = self.store.prefetch(hit, request);
        self.record_wait(hit);
        let replies = Arc::clone(&self.replies);
        StoreFuture::pending(async move {
            let _arrived = replies.read().await;
            grant.await
        })
    }

    fn settle(
        &self,
        receipt: &crate::store::Receipt,
        change: crate::budget::Adjustment,
    ) -> StoreFuture<Settlement> {
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
        let store = MemoryStore::new().clock(clock.clone());
        Fleet {
            store: Arc::new(FarStore::new(store, clock.clone())),
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

    /// A fleet with a limiter of which 300 hits in 300 ms have passed, so that it has units on hand.
    async fn warm(limits: &str, share: u32) -> (Fleet, Limiter) {
        let fleet = Fleet::new(limits, share);
        let limiter = fleet.limiter();
        for _ in 0..300 {
            assert!(fleet.hit(&limiter, 1_000).await.is_allowed());
        }
        (fleet, limiter)
    }

    /// The same budgets, seen through a connection of its own.
    fn with_own_connection(&self) -> Fleet {
        let store = FarStore::new(self.store.store.clone(), self.clock.clone());
        Fleet {
            store: Arc::new(store),
            clock: self.clock.clone(),
            policy: self.policy.clone(),
            key: self.key.clone(),
        }
    }

    /// A hit, after which keepers may run and `micros` pass.
    async fn hit(&self, limiter: &Limiter, micros: u64) -> crate::Decision {
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

    /// Whether the store has less than 5 % of a limit left.
    async fn is_low_in_store(&self) -> bool {
        let hit = Hit::new(&self.policy, &self.key).cost(0);
        let peek = self.store.store.hit(hit).await.unwrap();
        peek.decision
            .limits()
            .any(|limit| 20 * limit.remaining < limit.limit)
    }

    /// The units that the limiter reports as left: those of the store, and those on hand.
    async fn left(&self, limiter: &Limiter) -> u64 {
        let peek = limiter.peek(&self.policy, &self.key).await;
        peek.decision().unwrap().remaining
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
            if decision.is_allowed() {
                passed.push(decision.now);
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

/// Prints the chart of `docs/guides/prefetch.md`: 16,000 hits in a second on one key of `20000/s`, the first ones included.
#[tokio::test(start_paused = true)]
async fn the_share_and_the_number_of_instances_decide_how_many_hits_a_call_serves() {
    for instances in [1, 4, 16] {
        for share in [1, 5, 20] {
            let fleet = Fleet::new("20000/s", share);
            let limiters: Vec<Limiter> = (0..instances).map(|_| fleet.limiter()).collect();
            for limiter in limiters.iter().cycle().take(16_000) {
                assert!(fleet.hit(limiter, 62).await.is_allowed());
            }
            let calls = fleet.store.calls.load(Ordering::SeqCst) + fleet.hits_in_store();
            let (hits, most) = (16_000 / calls, 2_000.min(200 * share as usize / instances));
            let bar = "#".repeat(hits.div_ceil(10));
            println!(
                "{instances:>2} instances, {share:>2} %  {bar} {hits} hits a call, by the formula at most {most}"
            );
            assert!(
                (most / 6..=most).contains(&hits),
                "{hits} hits a call of at most {most}"
            );
        }
    }
}

/// Prints the curve of `docs/guides/prefetch.md`: eight instances at three times the limit, in five whole windows.
#[tokio::test(start_paused = true)]
async fn of_a_counter_at_saturation_ninety_nine_percent_pass() {
    const FROM: u64 = 602_000_000;
    const WINDOWS: usize = 5;
    for share in [1, 2, 5, 10] {
        let fleet = Fleet::new("sliding_window_counter 4000/s", share);
        let limiters: Vec<Limiter> = (0..8).map(|_| fleet.limiter()).collect();
        let calls = || fleet.store.calls.load(Ordering::SeqCst) + fleet.hits_in_store();
        let (mut passed, mut calls_before) = (Vec::new(), 0);
        for limiter in limiters.iter().cycle() {
            let now = fleet.clock.now().as_micros();
            if now >= FROM + WINDOWS as u64 * 1_000_000 {
                break;
            }
            if now < FROM {
                calls_before = calls();
            }
            let decision = fleet.hit(limiter, 83).await;
            if decision.is_allowed() {
                passed.push(decision.now);
            }
        }
        passed.sort();
        let store = MemoryStore::new().clock(fleet.clock.clone());
        for now in &passed {
            fleet.clock.set(*now);
            let hit = Hit::new(&fleet.policy, &fleet.key);
            assert!(store.hit(hit).await.unwrap().is_allowed(), "law 1");
        }
        let counted = passed.iter().filter(|now| now.as_micros() >= FROM).count();
        let per_mille = counted / (4 * WINDOWS);
        let calls = (calls() - calls_before) / WINDOWS;
        println!(
            "share {share:>2} %: {}.{} % of the limit, {calls} calls a second",
            per_mille / 10,
            per_mille % 10
        );
        assert!(per_mille >= 990, "share {share} %: {per_mille} per mille");
    }
}

/// Laws 3 and 8, on limits of 2,000 a second with their longest hold.
#[tokio::test(start_paused = true)]
async fn a_denial_from_memory_follows_a_low_budget_and_waits_as_long_as_the_store_said() {
    for (limits, hold) in [
        ("2000/s", 50_000),
        ("fixed_window 2000/s", 50_000),
        ("fixed_window 6000/8s", 400_000),
        ("sliding_window_counter 2000/s", 50_000),
        ("2000/s; fixed_window 6000/8s", 50_000),
    ] {
        for count in [1, 4] {
            let fleet = Fleet::new(limits, 5);
            let connected = (0..count).map(|_| {
                let instance = fleet.with_own_connection();
                (instance.limiter(), instance)
            });
            let instances: Vec<(Limiter, Fleet)> = connected.collect();
            let mut low_at = 0;
            let mut denied = 0;
            // Overload, a pause, and a load that the limit carries.
            for (rounds, micros) in [(8_000, 200), (1, 300_000), (1_500, 1_000)] {
                for (limiter, instance) in instances.iter().cycle().take(rounds) {
                    let now = fleet.clock.now();
                    if fleet.is_low_in_store().await {
                        low_at = now.as_micros();
                    }
                    let (answered_at, wait) = *lock(&instance.store.last_wait);
                    let decision = fleet.hit(limiter, micros).await;
                    assert!(decision.remaining <= decision.limit, "{limits}: law 8");
                    let Outcome::Denied { retry_after } = decision.outcome else {
                        continue;
                    };
                    if !decision.is_prefetched {
                        continue;
                    }
                    denied += 1;
                    // One hold and the time of a call: 2.5 ms, and the drift of the clock.
                    let low_ago = now.as_micros() - low_at;
                    assert!(
                        low_ago <= hold + 3_000,
                        "{limits}, {count} instances: denied {low_ago} us after less than the share was left (law 3)"
                    );
                    let still = wait.saturating_sub(now.since(answered_at));
                    assert!(
                        retry_after >= still && retry_after > Duration::ZERO,
                        "{limits}, {count} instances: {retry_after:?}, the store said {still:?} (law 8)"
                    );
                }
            }
            assert!(denied > 1_000, "{limits}, {count} instances: {denied}");
        }
    }
}

/// A bucket whose units live long, because there is debt in front of them, and a window.
#[tokio::test(start_paused = true)]
async fn a_refund_gives_units_back_to_their_slice_without_a_call() {
    for limits in [
        "10000/h",
        "fixed_window 10000/h",
        "10000/h; fixed_window 20000/h",
    ] {
        let (fleet, limiter) = Fleet::warm(limits, 10).await;
        let (left, in_store) = (fleet.left(&limiter).await, fleet.left_in_store().await);
        let (verdict, reservation) = limiter
            .reserve(Hit::new(&fleet.policy, &fleet.key).cost(3))
            .await;
        assert!(verdict.decision().unwrap().is_prefetched, "{limits}");
        assert_eq!(fleet.left(&limiter).await, left - 3, "{limits}");

        let settled = reservation.unwrap().settle(1).await.unwrap();

        assert_eq!(settled, Settlement::Applied, "{limits}");
        assert_eq!(fleet.left(&limiter).await, left - 1, "{limits}");
        assert_eq!(fleet.left_in_store().await, in_store, "{limits}");
    }
}

/// Units of a full bucket lapse from the first one on, and the bucket has their place back already.
#[tokio::test(start_paused = true)]
async fn a_refund_to_a_slice_that_is_void_in_part_gives_nothing_back() {
    let (fleet, limiter) = Fleet::warm("10000/s", 5).await;
    let (verdict, reservation) = limiter.reserve(Hit::new(&fleet.policy, &fleet.key)).await;
    assert!(verdict.decision().unwrap().is_prefetched);
    // Others spend units of the same slice, and the refunded one is void before they are.
    for _ in 0..50 {
        assert!(fleet.hit(&limiter, 0).await.is_prefetched);
    }
    fleet.clock.advance(Duration::from_micros(500));
    let (left, in_store) = (fleet.left(&limiter).await, fleet.left_in_store().await);

    reservation.unwrap().refund().await.unwrap();

    assert_eq!(fleet.left(&limiter).await, left);
    assert_eq!(fleet.left_in_store().await, in_store);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_limiter_gives_windows_their_units_back() {
    let (fleet, limiter) = Fleet::warm("sliding_window_counter 10000/h", 10).await;
    assert!(fleet.left_in_store().await < 9_700);
    drop(limiter);
    fleet.pass_time(0).await;
    assert_eq!(fleet.left_in_store().await, 9_700);
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
async fn units_of_a_store_that_was_emptied_are_dropped_with_the_next_answer() {
    let (fleet, limiter) = Fleet::warm("fixed_window 1000/h", 10).await;
    let other = fleet.limiter();
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
    let (fleet, limiter) = Fleet::warm("sliding_window_counter 10000/h", 10).await;
    assert!(fleet.left_in_store().await < 9_700);
    limiter.return_prefetched().await;
    assert_eq!(fleet.left_in_store().await, 9_700);
}

#[tokio::test(start_paused = true)]
async fn return_prefetched_gives_back_the_units_of_a_call_that_is_under_way() {
    let (fleet, limiter) = Fleet::warm("fixed_window 10000/h", 10).await;
    let held = fleet.store.replies.write().await;
    let calls = || fleet.store.calls.load(Ordering::SeqCst);
    let (before, mut passed) = (calls(), 300);
    while calls() == before {
        assert!(fleet.hit(&limiter, 1_000).await.is_allowed());
        passed += 1;
    }
    let arrive = async {
        tokio::task::yield_now().await;
        drop(held);
    };
    tokio::join!(limiter.return_prefetched(), arrive);
    assert_eq!(fleet.left_in_store().await, 10_000 - passed);
}

#[tokio::test(start_paused = true)]
async fn return_prefetched_waits_for_the_units_that_an_idle_key_gives_back() {
    let (fleet, limiter) = Fleet::warm("fixed_window 10000/h", 10).await;
    let held = fleet.store.replies.write().await;
    // The keeper ends, and its refund is under way.
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
async fn a_peek_adds_the_units_on_hand() {
    let (fleet, limiter) = Fleet::warm("fixed_window 10000/h", 10).await;
    assert_eq!(fleet.left(&limiter).await, 9_700);
}

#[tokio::test(start_paused = true)]
async fn units_on_hand_are_spent_while_the_store_is_down_and_then_the_failure_mode_decides() {
    let (fleet, limiter) = Fleet::warm("fixed_window 100000/h", 10).await;
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
async fn a_scarce_key_is_left_to_the_failure_mode_when_the_store_is_down() {
    let fleet = Fleet::new("2000/s", 5);
    let limiter = fleet.limiter().failure_mode(FailureMode::Open);
    let mut denied = 0;
    for _ in 0..10_000 {
        let decision = fleet.hit(&limiter, 200).await;
        denied += u64::from(decision.is_prefetched && !decision.is_allowed());
    }
    assert!(denied > 1_000, "the budget is scarce");
    fleet.store.is_down.store(true, Ordering::SeqCst);
    fleet.pass_time(100_000).await;
    for _ in 0..1_000 {
        let verdict = limiter.check(&fleet.policy, &fleet.key).await;
        assert!(verdict.is_allowed(), "{verdict:?}");
        fleet.pass_time(200).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_the_store_and_the_units_on_hand_pay_together_passes() {
    let (fleet, limiter) = Fleet::warm("fixed_window 1000/h", 20).await;
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
    let (fleet, limiter) = Fleet::warm("fixed_window 10000/h", 10).await;
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
