//! Local decisions while a store is down, and their later charge. A test switches the store off.

use std::{
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use crate::{
    budget::Adjustment,
    decision::Charged,
    key::Key,
    key_set::KeySet,
    limiter::{Limiter, Verdict},
    policy::{FailureMode, Policy},
    store::{Hit, JointHit, MemoryStore, Receipt, Settlement, Store, StoreError, StoreFuture},
    sync::lock,
    time::{Clock, Timestamp},
};

/// A memory store that fails while a test says so, and that refuses one key.
#[derive(Clone, Debug)]
struct SwitchedStore {
    inner: MemoryStore,
    clock: Clock,
    error: Arc<Mutex<Option<StoreError>>>,
    /// The milliseconds until it answers a change of a charge.
    delay: Arc<AtomicU64>,
}

impl SwitchedStore {
    fn new() -> SwitchedStore {
        let clock = Clock::manual(Timestamp::from_secs(600));
        SwitchedStore {
            inner: MemoryStore::new().clock(clock.clone()),
            clock,
            error: Arc::default(),
            delay: Arc::default(),
        }
    }

    fn switch(&self, is_away: bool) {
        let error = StoreError::Unavailable { source: None };
        self.fail_with(is_away.then_some(error));
    }

    fn fail_with(&self, error: Option<StoreError>) {
        *lock(&self.error) = error;
    }

    fn error(&self, key: &Key) -> Option<StoreError> {
        if let Some(error) = &*lock(&self.error) {
            return Some(error.clone());
        }
        let is_refused = key.as_str().contains("refused");
        is_refused.then(|| StoreError::refused(std::io::Error::other("WRONGTYPE")))
    }

    async fn remaining(&self, policy: &Policy, key: &Key) -> u64 {
        let peek = self.inner.hit(Hit::new(policy, key).cost(0)).await;
        peek.unwrap().decision.remaining
    }
}

impl Store for SwitchedStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        match self.error(hit.key) {
            Some(error) => StoreFuture::ready(Err(error)),
            None => self.inner.hit(hit),
        }
    }

    fn hit_joint(&self, members: &[JointHit<'_>]) -> StoreFuture<Vec<Charged>> {
        match self.error(members[0].hit.key) {
            Some(error) => StoreFuture::ready(Err(error)),
            None => self.inner.hit_joint(members),
        }
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        let delay = Duration::from_millis(self.delay.load(Ordering::SeqCst));
        if !delay.is_zero() {
            let (inner, receipt) = (self.inner.clone(), receipt.clone());
            return StoreFuture::pending(async move {
                tokio::time::sleep(delay).await;
                inner.settle(&receipt, change).await
            });
        }
        match self.error(receipt.keys().primary()) {
            Some(error) => StoreFuture::ready(Err(error)),
            None => self.inner.settle(receipt, change),
        }
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        self.inner.reset(policy, keys)
    }

    fn manual_clock(&self) -> Option<Clock> {
        Some(self.clock.clone())
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn policy(limits: &str) -> Policy {
    Policy::parse("policy", limits).unwrap()
}

async fn passed(limiter: &Limiter, policy: &Policy, keys: &KeySet, hits: usize) -> usize {
    let mut passed = 0;
    for _ in 0..hits {
        passed += usize::from(limiter.check_keys(policy, keys).await.is_allowed());
    }
    passed
}

/// Lets the task run that charges the store. Time is paused, so this takes none.
async fn catch_up(limiter: &Limiter) {
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if limiter.shared.fallback.uncharged.load(Ordering::SeqCst) == 0 {
            return;
        }
    }
    panic!("units are still uncharged");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_store_refuses_does_not_stop_the_others() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let limit = policy("fixed_window 10/d");
    store.switch(true);
    for name in ["refused", "a", "b", "c", "d", "e"] {
        passed(&limiter, &limit, &KeySet::new(key(name)), 3).await;
    }
    store.switch(false);

    catch_up(&limiter).await;

    for name in ["a", "b", "c", "d", "e"] {
        assert_eq!(store.remaining(&limit, &key(name)).await, 7, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn hits_of_several_users_of_one_address_are_charged_to_one_budget() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let limit = policy("100/d; fixed_window 10/d by ip");
    let home = |name: &str| KeySet::new(key(name)).with("ip", key("home"));
    store.switch(true);
    assert_eq!(passed(&limiter, &limit, &home("alice"), 8).await, 8);
    store.switch(false);
    // Bob's hit charges what Alice spent first.
    assert_eq!(passed(&limiter, &limit, &home("bob"), 1).await, 1);
    store.switch(true);
    assert_eq!(passed(&limiter, &limit, &home("bob"), 8).await, 1);
    store.switch(false);

    catch_up(&limiter).await;

    assert_eq!(passed(&limiter, &limit, &home("carol"), 8).await, 0);
}

#[tokio::test(start_paused = true)]
async fn replies_of_one_time_keep_what_is_uncharged_once() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let (limit, alice) = (policy("fixed_window 1000/d"), KeySet::new(key("alice")));
    passed(&limiter, &limit, &alice, 10).await;
    store.switch(true);
    passed(&limiter, &limit, &alice, 100).await;
    store.switch(false);

    // The clock stands still, so all replies have the same time.
    assert_eq!(passed(&limiter, &limit, &alice, 50).await, 50);
    catch_up(&limiter).await;

    assert_eq!(store.remaining(&limit, &key("alice")).await, 840);
}

#[test]
fn a_runtime_that_ends_leaves_hits_to_the_next_one() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let (limit, alice) = (policy("fixed_window 10/d"), KeySet::new(key("alice")));
    let runtime = || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        { runtime }.enable_all().start_paused(true).build().unwrap()
    };
    store.switch(true);
    runtime().block_on(passed(&limiter, &limit, &alice, 10));
    store.switch(false);

    runtime().block_on(async {
        let denied = limiter.check_keys(&limit, &alice).await;
        assert!(matches!(denied, Verdict::Checked(ref decision) if !decision.is_allowed()));
    });

    let remaining = runtime().block_on(store.remaining(&limit, &key("alice")));
    assert_eq!(remaining, 0);
}

/// A task of actix stays on the runtime of its worker, which may be blocked.
#[test]
fn a_runtime_that_is_not_driven_leaves_its_hits_to_another() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let (limit, alice) = (policy("fixed_window 10/d"), KeySet::new(key("alice")));
    let runtime = || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        { runtime }.enable_all().start_paused(true).build().unwrap()
    };
    let blocked = runtime();
    store.switch(true);
    blocked.block_on(passed(&limiter, &limit, &alice, 10));
    store.switch(false);
    // The task is taken over by the clock of the machine.
    std::thread::sleep(super::charge::MAX_SILENCE);

    runtime().block_on(async {
        passed(&limiter, &limit, &KeySet::new(key("bob")), 1).await;
        catch_up(&limiter).await;
    });

    let remaining = runtime().block_on(store.remaining(&limit, &key("alice")));
    assert_eq!(remaining, 0);
}

#[tokio::test(start_paused = true)]
async fn units_that_were_refunded_locally_are_not_charged() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let (limit, alice) = (policy("fixed_window 10/d"), key("alice"));
    store.switch(true);
    let (_, reservation) = limiter.reserve(Hit::new(&limit, &alice).cost(5)).await;
    let mut bytes = reservation.unwrap().into_receipt().to_bytes();
    // Earlier releases set a bit for charges that the store did not know.
    bytes[1] |= 0x80;
    let receipt = Receipt::from_bytes(&bytes, |_| Some(limit.clone())).unwrap();
    limiter.settle(&receipt, 2).await.unwrap();
    store.switch(false);

    catch_up(&limiter).await;

    assert_eq!(store.remaining(&limit, &alice).await, 8);
}

#[tokio::test(start_paused = true)]
async fn a_reset_by_another_instance_forgets_units_from_before() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let (limit, alice) = (policy("fixed_window 10/d"), KeySet::new(key("alice")));
    passed(&limiter, &limit, &alice, 1).await;
    store.switch(true);
    store.clock.advance(Duration::from_secs(1));
    passed(&limiter, &limit, &alice, 5).await;
    store.clock.advance(Duration::from_secs(1));
    store.inner.reset(&limit, &alice).await.unwrap();
    store.switch(false);

    catch_up(&limiter).await;

    assert_eq!(store.remaining(&limit, &key("alice")).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_later_charge_of_a_local_receipt_is_charged_too() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let (limit, later) = (policy("fixed_window 10/d"), key("later"));
    store.switch(true);
    let (_, reservation) = limiter.reserve(Hit::new(&limit, &later)).await;
    store.switch(false);
    catch_up(&limiter).await;
    assert_eq!(store.remaining(&limit, &later).await, 9);

    reservation.unwrap().settle(10).await.unwrap();

    catch_up(&limiter).await;
    assert_eq!(store.remaining(&limit, &later).await, 0);
}

#[tokio::test(start_paused = true)]
async fn budgets_beyond_the_capacity_are_limited_and_uncharged_ones_stay() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone()).local_capacity(64);
    let limit = policy("fixed_window 10/d");
    store.switch(true);
    for number in 0..100 {
        let subject = KeySet::new(key(&format!("k{number}")));
        assert_eq!(passed(&limiter, &limit, &subject, 12).await, 10, "{number}");
    }
    store.switch(false);

    catch_up(&limiter).await;

    for number in 0..64 {
        let remaining = store.remaining(&limit, &key(&format!("k{number}"))).await;
        assert_eq!(remaining, 0, "{number}");
    }
    assert_eq!(store.remaining(&limit, &key("k64")).await, 10);
}

/// A joint hit that Redis may have charged is taken back locally. Later hits are charged in full.
#[tokio::test(start_paused = true)]
async fn joint_hits_that_were_taken_back_hide_no_later_hits() {
    for (limits, wait, left) in [
        ("fixed_window 10/d", 0, 4),
        ("10/d", 0, 4),
        ("sliding_window_log 10/d", 0, 4),
        ("sliding_window_counter 10/d", 0, 4),
        // The hits from before the outage end.
        ("sliding_window_log 10/min", 11, 6),
    ] {
        let store = SwitchedStore::new();
        let limiter = Limiter::new(store.clone());
        let user = policy(limits);
        let route = Policy::parse("route", "fixed_window 1/d").unwrap();
        let (alice, search) = (key("alice"), key("/search"));
        let alices = KeySet::new(alice.clone());
        passed(&limiter, &user, &alices, 2).await;
        passed(&limiter, &route, &KeySet::new(search.clone()), 1).await;
        store.clock.advance(Duration::from_secs(50));
        store.fail_with(Some(StoreError::TimedOut));
        let both = [
            JointHit::new(Hit::new(&user, &alice).cost(4)),
            JointHit::new(Hit::new(&route, &search)),
        ];
        for _ in 0..3 {
            assert!(!limiter.check_joint(&both).unwrap().await.is_allowed);
        }
        store.clock.advance(Duration::from_secs(wait));
        store.switch(true);
        assert_eq!(passed(&limiter, &user, &alices, 4).await, 4, "{limits}");
        store.switch(false);

        catch_up(&limiter).await;

        assert_eq!(store.remaining(&user, &alice).await, left, "{limits}");
    }
}

#[tokio::test(start_paused = true)]
async fn units_that_passed_under_another_share_are_charged_in_full() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let alice = KeySet::new(key("alice"));
    let shared_by = |instances| {
        let instances = NonZeroU32::new(instances).unwrap();
        policy("100/d").with_failure_mode(FailureMode::LocalShare { instances })
    };
    assert_eq!(passed(&limiter, &shared_by(2), &alice, 1).await, 1);
    store.switch(true);
    assert_eq!(passed(&limiter, &shared_by(2), &alice, 20).await, 20);
    assert_eq!(passed(&limiter, &shared_by(4), &alice, 5).await, 5);
    store.switch(false);

    catch_up(&limiter).await;

    assert_eq!(store.remaining(&policy("100/d"), &key("alice")).await, 74);
}

/// With a reply in between, without one, and with one before: a local budget that became too small loses nothing.
#[tokio::test(start_paused = true)]
async fn units_beyond_a_smaller_share_are_charged() {
    let whole = policy("fixed_window 100/d");
    let instances = NonZeroU32::new(4).unwrap();
    let shared = whole
        .clone()
        .with_failure_mode(FailureMode::LocalShare { instances });
    let alice = KeySet::new(key("alice"));
    for before in [0, 1] {
        let store = SwitchedStore::new();
        let limiter = Limiter::new(store.clone());
        passed(&limiter, &whole, &alice, before).await;
        store.switch(true);
        assert_eq!(passed(&limiter, &whole, &alice, 60).await, 60);
        assert_eq!(passed(&limiter, &shared, &alice, 5).await, 0);
        store.switch(false);

        catch_up(&limiter).await;

        let left = store.remaining(&whole, &key("alice")).await;
        assert_eq!(left, 40 - before as u64);
    }

    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    passed(&limiter, &shared, &alice, 1).await;
    store.fail_with(Some(StoreError::Overloaded));
    assert_eq!(passed(&limiter, &shared, &alice, 20).await, 20);
    store.fail_with(None);
    store.clock.advance(Duration::from_secs(1));
    let name = key("alice");
    let late = Hit::new(&shared, &name).cost(59);
    let reply = store.inner.check(&late);
    let fallback = &limiter.shared.fallback;
    fallback.replied(&late, &reply.decision, Instant::now());

    catch_up(&limiter).await;

    assert_eq!(store.remaining(&shared, &name).await, 20);
}

/// A log counts its newest hit for a period, and a counter its window until the end of the next.
#[tokio::test(start_paused = true)]
async fn units_that_still_count_are_not_evicted() {
    for limits in ["sliding_window_log 10/min", "sliding_window_counter 10/min"] {
        let store = SwitchedStore::new();
        let limiter = Limiter::new(store.clone()).local_capacity(64);
        let limit = policy(limits);
        let subject = |number: u32| KeySet::new(key(&format!("k{number}")));
        store.switch(true);
        for number in 0..64 {
            passed(&limiter, &limit, &subject(number), 1).await;
        }
        store.clock.advance(Duration::from_secs(50));
        for number in 0..64 {
            assert_eq!(passed(&limiter, &limit, &subject(number), 9).await, 9);
        }
        store.clock.advance(Duration::from_secs(11));
        for number in 64..128 {
            passed(&limiter, &limit, &subject(number), 1).await;
        }
        store.switch(false);

        catch_up(&limiter).await;

        for number in 0..64 {
            let left = store.remaining(&limit, &key(&format!("k{number}"))).await;
            assert!(left < 10, "{limits}: {number}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn budgets_that_time_has_restored_make_room_for_others() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone()).local_capacity(64);
    let limit = policy("fixed_window 10/min");
    let subject = |number: u32| KeySet::new(key(&format!("k{number}")));
    store.switch(true);
    for number in 0..64 {
        passed(&limiter, &limit, &subject(number), 3).await;
    }
    // The bound for all algorithms: a counter counts for two periods, and a bucket may have a burst.
    store.clock.advance(Duration::from_secs(180));
    for number in 64..128 {
        passed(&limiter, &limit, &subject(number), 3).await;
    }
    store.switch(false);

    catch_up(&limiter).await;

    for number in 64..128 {
        let left = store.remaining(&limit, &key(&format!("k{number}"))).await;
        assert_eq!(left, 7, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_charge_without_an_answer_does_not_keep_a_budget_from_the_store() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let (limit, alice) = (policy("fixed_window 10/d"), KeySet::new(key("alice")));
    store.switch(true);
    assert_eq!(passed(&limiter, &limit, &alice, 3).await, 3);
    store.switch(false);
    store.delay.store(3_600_000, Ordering::SeqCst);

    let first = tokio::spawn({
        let (limiter, limit, alice) = (limiter.clone(), limit.clone(), alice.clone());
        async move { limiter.check_keys(&limit, &alice).await }
    });
    tokio::task::yield_now().await;
    let second = limiter.check_keys(&limit, &alice).await;

    assert!(matches!(second, Verdict::Checked(_)), "{second:?}");
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_hit_ends_its_wait_for_a_charge() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let (limit, alice) = (policy("fixed_window 10/d"), key("alice"));
    store.switch(true);
    let _ = limiter.check(&limit, &alice).await;
    store.switch(false);
    store.delay.store(3_600_000, Ordering::SeqCst);

    let started = tokio::time::Instant::now();
    let hit = Hit::new(&limit, &alice).deadline(Instant::now() + Duration::from_millis(50));
    let verdict = limiter.check_hit(hit).await;

    assert!(matches!(verdict, Verdict::Unchecked { .. }), "{verdict:?}");
    assert!(started.elapsed() < super::charge::MAX_SILENCE);
}

/// Hits that pass locally while another waits for a charge are charged behind it.
#[tokio::test(start_paused = true)]
async fn a_hit_waits_for_the_charge_of_what_passed_before_it_and_no_longer() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let (limit, alice) = (policy("fixed_window 1000/d"), key("alice"));
    store.switch(true);
    let _ = limiter.check(&limit, &alice).await;
    store.switch(false);
    store.delay.store(300, Ordering::SeqCst);

    let hurried = tokio::spawn({
        let (limiter, limit, alice) = (limiter.clone(), limit.clone(), alice.clone());
        async move {
            loop {
                // Its deadline ends its wait, and it passes locally.
                let soon = Instant::now() + Duration::from_millis(20);
                let _ = limiter
                    .check_hit(Hit::new(&limit, &alice).deadline(soon))
                    .await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let patient = tokio::time::timeout(Duration::from_secs(10), limiter.check(&limit, &alice));

    assert!(patient.await.is_ok());
    hurried.abort();
}

#[test]
fn a_deadline_needs_no_runtime() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone());
    let (limit, alice) = (policy("fixed_window 10/d"), key("alice"));
    let check = |hit: Hit<'_>| {
        let mut check = std::pin::pin!(limiter.check_hit(hit));
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(verdict) = check.as_mut().poll(&mut context) {
                return verdict;
            }
        }
    };
    store.switch(true);
    assert!(check(Hit::new(&limit, &alice)).is_allowed());
    store.switch(false);

    let deadline = Instant::now() + Duration::from_secs(60);
    let verdict = check(Hit::new(&limit, &alice).deadline(deadline));

    assert!(matches!(verdict, Verdict::Checked(_)), "{verdict:?}");
}

/// The second group of a hit has taken the only place from the first one.
#[tokio::test(start_paused = true)]
async fn units_of_a_group_without_a_place_are_logged_as_dropped() {
    let store = SwitchedStore::new();
    let limiter = Limiter::new(store.clone()).local_capacity(1);
    let limit = policy("fixed_window 100/d; fixed_window 10/d by ip");
    let keys = KeySet::new(key("alice")).with("ip", key("home"));
    store.switch(true);

    assert_eq!(passed(&limiter, &limit, &keys, 1).await, 1);

    assert!(limiter.shared.fallback.dropped.permit().is_none());
}

#[test]
fn slots_that_are_taken_while_others_are_released_stay_released() {
    let limiter = Limiter::new(SwitchedStore::new());
    let (limit, alice) = (policy("concurrency 2000"), key("alice"));
    let fallback = &limiter.shared.fallback;
    let take = || {
        let hit = Hit::new(&limit, &alice).numbered();
        let charged = MemoryStore::new().check(&hit);
        fallback.replied(&hit, &charged.decision, Instant::now());
        Receipt::from_marks(hit, charged.decision.now, std::iter::empty()).unwrap()
    };
    let taken: Vec<Receipt> = (0..1_000).map(|_| take()).collect();
    let both_run = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            both_run.wait();
            (0..1_000).for_each(|_| drop(take()));
        });
        both_run.wait();
        for receipt in &taken {
            fallback.local.adjust(receipt, Adjustment::Release);
        }
    });

    let left = fallback.local.check(&Hit::new(&limit, &alice).cost(0));
    assert_eq!(left.decision.remaining, 1_000);
}
