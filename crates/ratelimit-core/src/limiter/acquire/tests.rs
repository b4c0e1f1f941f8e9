use std::{
    future::{Future, pending},
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll, Waker},
};

use tokio::{
    sync::Notify,
    task::{JoinHandle, yield_now},
    time::sleep,
};

use super::*;
use crate::{
    key_set::KeySet,
    policy::FailureMode,
    store::{Charged, Hit, MemoryStore, Store, StoreError, StoreFuture},
    time::{Clock, Timestamp},
};

const EPOCH: Timestamp = Timestamp::from_secs(600);

/// A memory store whose clock shows what tokio's does.
#[derive(Debug)]
struct SteppedStore {
    store: MemoryStore,
    clock: Clock,
    began: Instant,
}

impl SteppedStore {
    fn new() -> SteppedStore {
        let clock = Clock::manual(EPOCH);
        SteppedStore {
            store: MemoryStore::new().clock(clock.clone()),
            clock,
            began: Instant::now(),
        }
    }
}

impl Store for SteppedStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        self.clock.set(EPOCH + self.began.elapsed());
        self.store.hit(hit)
    }

    fn reset(&self, policy: &Policy, key: &KeySet) -> StoreFuture<()> {
        self.store.reset(policy, key)
    }
}

fn limiter() -> Limiter {
    Limiter::new(SteppedStore::new())
}

fn policy(limits: &str) -> Policy {
    Policy::parse("turns", limits).unwrap()
}

fn alice() -> Key {
    Key::new("alice").unwrap()
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Who passed, and in which second.
type Passed = Arc<Mutex<Vec<(u64, u64)>>>;

/// Lets `who` wait in a task that has begun to when this returns.
async fn wait(limiter: &Limiter, policy: &Policy, who: u64, passed: &Passed) -> JoinHandle<bool> {
    let (limiter, policy, passed) = (limiter.clone(), policy.clone(), Arc::clone(passed));
    let task = tokio::spawn(async move {
        let verdict = limiter.acquire(&policy, &alice(), secs(3_600)).await;
        let second = verdict.as_ref().map_or(0, |verdict| {
            let now = verdict.decision().unwrap().now;
            now.since(EPOCH).as_secs()
        });
        passed.lock().unwrap().push((who, second));
        verdict.is_ok()
    });
    yield_now().await;
    task
}

async fn all(tasks: Vec<JoinHandle<bool>>) {
    for task in tasks {
        assert!(task.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_pass_in_the_order_in_which_they_came() {
    for (limits, per_second) in [
        ("fixed_window 7/s", 7),
        ("1/s", 1),
        ("sliding_window_log 3/s", 3),
    ] {
        let (limiter, policy, passed) = (limiter(), policy(limits), Passed::default());
        let mut tasks = Vec::new();
        for who in 0..100 {
            tasks.push(wait(&limiter, &policy, who, &passed).await);
        }
        assert_eq!(limiter.waiting(&policy, &alice()), 100 - per_second);

        all(tasks).await;

        let in_turn = (0..100).map(|who| (who, who / per_second as u64));
        assert_eq!(
            *passed.lock().unwrap(),
            in_turn.collect::<Vec<_>>(),
            "{limits}"
        );
        assert!(limiter.shared.wait_queues.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_hit_does_not_overtake_a_large_one() {
    let (limiter, policy, passed) = (limiter(), policy("fixed_window 5/min"), Passed::default());
    let _ = limiter.check_cost(&policy, &alice(), 1).await;
    let (large, its_policy) = (limiter.clone(), policy.clone());
    let first = tokio::spawn(async move {
        let acquired = large.acquire_cost(&its_policy, &alice(), 5, secs(60)).await;
        acquired.is_ok()
    });
    yield_now().await;

    let small = wait(&limiter, &policy, 1, &passed).await;
    all(vec![first, small]).await;

    assert_eq!(*passed.lock().unwrap(), [(1, 120)]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_comes_too_late_is_refused_at_once_and_spends_nothing() {
    let (limiter, policy, key) = (limiter(), policy("2/min"), alice());
    let _ = limiter.check_cost(&policy, &key, 2).await;
    let began = Instant::now();

    let late = limiter.acquire(&policy, &key, secs(29)).await.unwrap_err();

    assert_eq!(late.retry_after, Some(secs(30)));
    assert!(!late.verdict.unwrap().is_allowed());
    assert_eq!(Instant::now(), began);
    assert!(limiter.acquire(&policy, &key, secs(30)).await.is_ok());
    assert_eq!(began.elapsed(), secs(30));
    assert!(limiter.shared.wait_queues.is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_behind_a_head_that_waits_longer_is_refused_at_once() {
    let (limiter, policy, passed) = (limiter(), policy("1/min"), Passed::default());
    let _ = limiter.check(&policy, &alice()).await;
    let head = wait(&limiter, &policy, 0, &passed).await;
    let began = Instant::now();

    let late = limiter
        .acquire(&policy, &alice(), secs(59))
        .await
        .unwrap_err();

    assert_eq!((late.retry_after, late.verdict), (Some(secs(60)), None));
    assert_eq!(Instant::now(), began);
    all(vec![head]).await;
}

#[tokio::test(start_paused = true)]
async fn one_further_back_learns_it_when_the_time_is_over() {
    let (limiter, policy, passed) = (limiter(), policy("1/min"), Passed::default());
    let _ = limiter.check(&policy, &alice()).await;
    let head = wait(&limiter, &policy, 0, &passed).await;
    let second = wait(&limiter, &policy, 1, &passed).await;
    let began = Instant::now();

    let late = limiter
        .acquire(&policy, &alice(), secs(90))
        .await
        .unwrap_err();

    assert_eq!(
        (late.retry_after, began.elapsed()),
        (Some(secs(30)), secs(90))
    );
    all(vec![head, second]).await;
    assert!(limiter.shared.wait_queues.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_can_never_pass_is_refused_at_once() {
    let (limiter, policy) = (limiter(), policy("2/min"));
    let began = Instant::now();

    let late = limiter
        .acquire_cost(&policy, &alice(), 3, Duration::MAX)
        .await;

    assert_eq!(late.unwrap_err().retry_after, None);
    assert_eq!(Instant::now(), began);
    assert!(
        limiter
            .acquire_cost(&policy, &alice(), 2, Duration::MAX)
            .await
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_at_once() {
    let limiter = limiter().max_waiters(2);
    let (policy, passed) = (policy("1/s"), Passed::default());
    let mut tasks = Vec::new();
    for who in 0..3 {
        tasks.push(wait(&limiter, &policy, who, &passed).await);
    }

    let late = limiter.acquire(&policy, &alice(), secs(3_600)).await;

    assert_eq!(late.unwrap_err(), AcquireError::default());
    assert_eq!(limiter.waiting(&policy, &Key::new("bob").unwrap()), 0);
    all(tasks).await;
    assert!(
        limiter
            .max_waiters(0)
            .shared
            .wait_queues
            .enqueue(&policy, &alice())
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn the_delay_of_a_shaping_limit_is_waited_out() {
    let (limiter, policy, key) = (limiter(), policy("leaky_bucket 1/s queue 10"), alice());
    let began = Instant::now();

    for index in 0..3 {
        let limiter = limiter.clone();
        let acquired = limiter.acquire(&policy, &key, secs(1)).await;
        assert!(acquired.is_ok());
        assert_eq!(began.elapsed(), secs(index));
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_time_left_is_refused_and_spends_nothing() {
    let (limiter, policy, key) = (limiter(), policy("leaky_bucket 1/s queue 10"), alice());
    let _ = limiter.check_cost(&policy, &key, 5).await;
    let began = Instant::now();

    let late = limiter.acquire(&policy, &key, secs(4)).await.unwrap_err();

    assert_eq!(
        (late.retry_after, began.elapsed()),
        (Some(secs(5)), secs(0))
    );
    let looked = limiter.peek(&policy, &key).await;
    assert_eq!(looked.decision().unwrap().remaining, 5);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_head_hands_its_turn_on_at_once() {
    let (limiter, policy, passed) = (limiter(), policy("fixed_window 5/min"), Passed::default());
    let _ = limiter.check_cost(&policy, &alice(), 3).await;
    let (large, its_policy) = (limiter.clone(), policy.clone());
    let head = tokio::spawn(async move {
        large
            .acquire_cost(&its_policy, &alice(), 5, secs(600))
            .await
    });
    yield_now().await;
    let next = wait(&limiter, &policy, 1, &passed).await;
    sleep(secs(1)).await;
    assert_eq!(limiter.waiting(&policy, &alice()), 2);

    head.abort();
    all(vec![next]).await;

    assert_eq!(*passed.lock().unwrap(), [(1, 1)]);
    assert!(limiter.shared.wait_queues.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_cancellations_leaks_nothing_and_keeps_the_order() {
    let (limiter, policy, passed) = (limiter(), policy("1/s"), Passed::default());
    let mut tasks = Vec::new();
    for who in 0..300 {
        tasks.push(wait(&limiter, &policy, who, &passed).await);
    }
    let (mut stay, mut seed) = (Vec::new(), 7u64);
    for (who, task) in tasks.into_iter().enumerate() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if who > 0 && seed >> 62 != 0 {
            task.abort();
            sleep(Duration::from_millis(seed >> 56)).await;
        } else {
            stay.push(task);
        }
    }
    for task in stay {
        assert!(task.await.unwrap());
    }

    let passed = passed.lock().unwrap();
    assert!(passed.len() > 40, "{}", passed.len());
    assert!(passed.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1));
    assert!(limiter.shared.wait_queues.is_empty());
}

/// A store that answers only when it is told to.
#[derive(Debug)]
struct SlowStore {
    store: MemoryStore,
    answer: Arc<Notify>,
}

impl Store for SlowStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        let (store, answer) = (self.store.clone(), Arc::clone(&self.answer));
        let (policy, key, cost) = (hit.policy.clone(), hit.key.clone(), hit.cost);
        StoreFuture::pending(async move {
            answer.notified().await;
            store.hit(Hit::new(&policy, &key).cost(cost)).await
        })
    }

    fn reset(&self, policy: &Policy, key: &KeySet) -> StoreFuture<()> {
        self.store.reset(policy, key)
    }
}

fn is_pending(future: Pin<&mut impl Future>) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    matches!(future.poll(&mut cx), Poll::Pending)
}

#[tokio::test(start_paused = true)]
async fn cancelled_in_any_state_nothing_stays_behind() {
    let answer = Arc::new(Notify::new());
    let clock = Clock::manual(EPOCH);
    let limiter = Limiter::new(SlowStore {
        store: MemoryStore::new().clock(clock.clone()),
        answer: Arc::clone(&answer),
    })
    .without_deny_cache();
    let (policy, key) = (policy("1/min"), alice());
    answer.notify_one();
    assert!(limiter.acquire(&policy, &key, secs(60)).await.is_ok());

    for state in ["asking", "sleeping", "asking again", "queued"] {
        let (other, its_policy, its_key) = (limiter.clone(), policy.clone(), key.clone());
        let mut head =
            Box::pin(async move { other.acquire(&its_policy, &its_key, secs(60)).await });
        let mut next = Box::pin(limiter.acquire(&policy, &key, secs(60)));
        assert!(is_pending(head.as_mut()));
        if state != "asking" {
            answer.notify_one();
            assert!(is_pending(head.as_mut()));
            assert_eq!(limiter.waiting(&policy, &key), 1, "{state}");
        }
        if state == "asking again" {
            sleep(secs(60)).await;
            assert!(is_pending(head.as_mut()));
        }
        if state == "queued" {
            assert!(is_pending(next.as_mut()));
            assert_eq!(limiter.waiting(&policy, &key), 2);
            drop(next);
            assert_eq!(limiter.waiting(&policy, &key), 1);
        }
        drop(head);
        assert!(limiter.shared.wait_queues.is_empty(), "{state}");
    }

    clock.advance(secs(60));
    answer.notify_one();
    assert!(limiter.acquire(&policy, &key, secs(0)).await.is_ok());
}

#[derive(Debug)]
struct AbsentStore;

impl Store for AbsentStore {
    fn hit(&self, _: Hit<'_>) -> StoreFuture<Charged> {
        StoreFuture::ready(Err(StoreError::TimedOut))
    }

    fn reset(&self, _: &Policy, _: &KeySet) -> StoreFuture<()> {
        StoreFuture::pending(pending())
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_store_the_failure_mode_answers() {
    let policy = policy("1/h");
    let within = secs(60);

    let open = Limiter::new(AbsentStore).failure_mode(FailureMode::Open);
    for _ in 0..3 {
        assert!(open.acquire(&policy, &alice(), within).await.is_ok());
    }

    let closed = Limiter::new(AbsentStore).failure_mode(FailureMode::Closed);
    let late = closed.acquire(&policy, &alice(), within).await.unwrap_err();
    assert_eq!(late.retry_after, None);
    assert!(matches!(*late.verdict.unwrap(), Verdict::Unchecked { .. }));

    let local = Limiter::new(AbsentStore);
    assert!(local.acquire(&policy, &alice(), within).await.is_ok());
    let late = local.acquire(&policy, &alice(), within).await.unwrap_err();
    assert!(late.retry_after.unwrap() > within);
}

#[test]
fn a_wait_can_move_between_threads() {
    fn is_send(_: impl Send) {}
    let (limiter, policy, key) = (Limiter::in_memory(), policy("1/s"), alice());

    is_send(limiter.acquire(&policy, &key, secs(1)));

    assert!(limiter.shared.wait_queues.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_not_enforced_neither_delays_nor_refuses() {
    let begin = Instant::now();
    for limits in [
        "1/h",
        "leaky_bucket 1/min queue 9",
        "concurrency 1 lease 1h",
        "5/h",
    ] {
        let shadow = policy(limits).shadow();
        let limiter = limiter();
        for (cost, within) in [(1, 3_600), (1, 0), (1, 3_600), (7, 3_600)] {
            let key = alice();
            let acquired = limiter.acquire_cost(&shadow, &key, cost, secs(within));
            assert!(acquired.await.unwrap().is_allowed(), "{limits}");
        }
        let looked = limiter.peek(&shadow, &alice()).await;
        assert!(looked.decision().unwrap().remaining < shadow.limits()[0].capacity());
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_shapes_is_looked_at_before_it_is_charged() {
    let tiered = policy("100/s")
        .with_tier("slow", "leaky_bucket 1/min queue 9")
        .unwrap();
    let tiered = tiered.with_tier_members([(alice(), "slow")]);
    let limiter = limiter();
    assert!(limiter.acquire(&tiered, &alice(), secs(1)).await.is_ok());
    let before = limiter.peek(&tiered, &alice()).await;

    let late = limiter
        .acquire(&tiered, &alice(), secs(1))
        .await
        .unwrap_err();

    assert_eq!(late.retry_after, Some(secs(60)));
    let after = limiter.peek(&tiered, &alice()).await;
    let remaining = |verdict: &Verdict| verdict.decision().unwrap().remaining;
    assert_eq!(remaining(&after), remaining(&before));
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_awaited_until_it_is_released_or_the_time_is_over() {
    let limiter = Limiter::in_memory();
    let slots = Policy::parse("slots", "concurrency 1 lease 1h").unwrap();
    let (_, held) = limiter.reserve(Hit::new(&slots, &alice())).await;
    assert!(held.is_some());

    let late = limiter.acquire(&slots, &alice(), secs(3)).await;
    assert_eq!(late.unwrap_err().retry_after, Some(secs(1)));

    let waiting = tokio::spawn({
        let (limiter, slots) = (limiter.clone(), slots.clone());
        async move { limiter.acquire(&slots, &alice(), secs(30)).await }
    });
    sleep(secs(5)).await;
    assert!(!waiting.is_finished());
    drop(held);

    assert!(waiting.await.unwrap().is_ok());
}
