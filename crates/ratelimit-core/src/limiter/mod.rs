//! The limiter: decides hits by its store, and by the failure mode when the store does not answer.
//!
//! - `check.rs`: [`Check`], the future of one check; it turns a store's answer into a [`Verdict`] (`verdict.rs`).
//! - `joint.rs`: [`JointCheck`], the future of a check under several policies.
//! - `denial.rs`: metrics of verdicts, the wait that a denial reports, and its log line.
//! - `policy_names.rs`: one warning when two policies of one name have different limits.
//! - `deny_cache.rs`: answers repeated denials without a call to the store.
//! - `fallback/`: decides while the store does not answer, from what the store replied last.
//! - `prefetch/`: hits on hot keys that are paid by units which the store has charged before.
//! - `unchecked.rs`: hits that the store does not decide.
//! - `reservation.rs`: [`Reservation`], a charge that can be settled, and that holds a slot.
//! - `settle.rs`: settlement, release and renewal by receipt. `reset.rs`: clearing budgets.
//! - `acquire.rs`: waiting until a hit is allowed. `wait_queue.rs`: the FIFO queues behind it.
//! - `offenders.rs`: the most denied keys.

#[cfg(feature = "acquire")]
mod acquire;
mod check;
mod denial;
mod deny_cache;
mod fallback;
mod joint;
mod offenders;
mod policy_names;
mod prefetch;
mod reservation;
mod reset;
mod settle;
mod unchecked;
mod verdict;
#[cfg(feature = "acquire")]
mod wait_queue;

use std::{any::Any, fmt, sync::Arc};

use tracing::level_filters::LevelFilter;

#[cfg(feature = "acquire")]
pub use self::acquire::AcquireError;
#[cfg(feature = "tokio")]
pub use self::prefetch::PrefetchState;
pub use self::{
    check::Check,
    joint::JointCheck,
    reservation::{Reservation, Reserve},
    settle::SettleError,
    verdict::{JointVerdict, MemberVerdict, UncheckedReason, Verdict},
};
#[cfg(feature = "acquire")]
use crate::limiter::wait_queue::WaitQueues;
use crate::limiter::{
    denial::{log_denial, with_slot_wait},
    deny_cache::DenyCache,
    fallback::Fallback,
    policy_names::PolicyNames,
    prefetch::Prefetch,
    verdict::Answer,
};
use crate::{
    decision::{Charged, Decision},
    key::Key,
    key_set::KeySet,
    offenders::Offenders,
    policy::{FailureMode, Policy},
    store::{Hit, MemoryStore, Store, StoreError},
    time::Clock,
};

/// Decides hits by a [`Store`], and by the failure mode when the store does not answer.
///
/// - A check never fails: an error of the store becomes [`Verdict::Unchecked`], decided by the policy's
///   [`FailureMode`] or by that of the limiter.
/// - A check never waits for a connection. It takes at most the time budget of the store, and after an outage the time
///   until what passed locally on its key is charged.
/// - A denied hit spends nothing. Several limits of one policy are charged all or nothing.
/// - [`check`](Limiter::check) is complete when its future is ready; [`reserve`](Limiter::reserve) returns a
///   [`Reservation`] to settle, refund or release later.
/// - [`peek`](Limiter::peek) and [`dry_run`](Limiter::dry_run) spend nothing, and metrics do not count them.
/// - Repeated denials of a store over a network are answered by the [deny cache](Limiter::without_deny_cache).
///
/// Clones share the store, the caches and the queues, and cost one reference count. A setter on a limiter with clones
/// leaves the clones as they are.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let limiter = Limiter::in_memory();
/// let policy = Policy::parse("api", "2/min")?;
/// let alice = Key::new("alice")?;
///
/// assert!(limiter.check(&policy, &alice).await.is_allowed());
/// assert!(limiter.check(&policy, &alice).await.is_allowed());
/// let third = limiter.check(&policy, &alice).await;
/// assert!(!third.is_allowed());
/// assert!(third.decision().unwrap().retry_after().is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "rate limiter")]
#[doc(alias = "throttle")]
#[doc(alias = "quota")]
#[doc(alias("governor", "RateLimiter"))]
pub struct Limiter {
    shared: Arc<LimiterInner>,
}

/// The state that clones of a [`Limiter`] share. A setter clones it if there are other limiters.
#[derive(Clone)]
struct LimiterInner {
    /// Decides hits.
    store: Arc<dyn Store>,
    /// A clone of `store` if it is a [`MemoryStore`], which never fails and needs neither deny cache nor fallback.
    memory: Option<MemoryStore>,
    /// The mode of policies without one of their own; `None` means the default.
    failure_mode: Option<FailureMode>,
    /// Decides in the modes `Local` and `LocalShare`.
    fallback: Arc<Fallback>,
    offenders: Offenders,
    /// Caches denials of a store over a network; empty for a memory store.
    deny_cache: Arc<DenyCache>,
    /// Pays hits on hot keys by units that were charged in advance.
    prefetch: Arc<dyn Prefetch>,
    /// One permit for each settlement that is retried in the background.
    #[cfg(feature = "tokio")]
    late_settlements: Arc<tokio::sync::Semaphore>,
    /// The limits of each policy that was announced.
    policy_names: Arc<PolicyNames>,
    /// Waiters of [`Limiter::acquire`], one queue for each budget.
    #[cfg(feature = "acquire")]
    wait_queues: Arc<WaitQueues>,
}

impl Limiter {
    /// Makes a limiter over a store, with [`FailureMode::Local`].
    ///
    /// Make one limiter for each store and clone it: two limiters over one Redis have two local stores and two deny
    /// caches.
    pub fn new(store: impl Store) -> Limiter {
        let deny_cache = DenyCache::new(store.manual_clock());
        let fallback = Fallback::new(store.manual_clock());
        // Recognised by type: a wrapper around a memory store is called through the trait.
        let memory: Option<MemoryStore> = (&store as &dyn Any).downcast_ref().cloned();
        let shared = LimiterInner {
            prefetch: prefetch::over(&store, memory.is_some()),
            memory,
            store: Arc::new(store),
            failure_mode: None,
            fallback: Arc::new(fallback),
            offenders: Offenders::new(),
            deny_cache: Arc::new(deny_cache),
            #[cfg(feature = "tokio")]
            late_settlements: Arc::new(tokio::sync::Semaphore::new(settle::MAX_LATE_SETTLEMENTS)),
            policy_names: Arc::default(),
            #[cfg(feature = "acquire")]
            wait_queues: Arc::default(),
        };
        Limiter {
            shared: Arc::new(shared),
        }
    }

    /// Makes a limiter over a new [`MemoryStore`] with its defaults.
    ///
    /// Its limits hold for this process only.
    pub fn in_memory() -> Limiter {
        Limiter::new(MemoryStore::new())
    }

    /// Whether the store is a [`MemoryStore`] that no clone of the limiter or of the store shares.
    ///
    /// A framework that builds its services once for each worker detects with it that each worker would have budgets of
    /// its own.
    pub fn is_unshared_memory(&self) -> bool {
        // The limiter itself holds two clones: `store` and `memory`.
        let memory = self.shared.memory.as_ref();
        memory.is_some_and(|memory| memory.clone_count() == 2)
            && Arc::strong_count(&self.shared) == 1
            && Arc::strong_count(&self.shared.store) == 1
    }

    /// Sets the failure mode: how a hit is decided when the store does not answer. The default is
    /// [`FailureMode::Local`].
    ///
    /// A policy overrides it with [`Policy::with_failure_mode`].
    ///
    /// ```
    /// use ratelimit_core::{FailureMode, Limiter};
    ///
    /// let limiter = Limiter::in_memory().failure_mode(FailureMode::Open);
    /// ```
    #[must_use]
    #[doc(alias = "fail open")]
    #[doc(alias = "fail closed")]
    #[doc(alias = "fallback")]
    pub fn failure_mode(self, mode: FailureMode) -> Limiter {
        let shared = LimiterInner {
            failure_mode: Some(mode),
            ..Arc::unwrap_or_clone(self.shared)
        };
        Limiter {
            shared: Arc::new(shared),
        }
    }

    /// Whether [`failure_mode`](Self::failure_mode) was called.
    ///
    /// An adapter detects with it that the limiter leaves the mode to the defaults of the process.
    pub fn has_failure_mode(&self) -> bool {
        self.shared.failure_mode.is_some()
    }

    /// Sets the number of keys that the local failure modes hold. The default is 65,536.
    ///
    /// The local budget of a key follows the replies of the store, so it must hold the keys that are hit within the
    /// longest period. A key that is not held starts full during an outage.
    ///
    /// Call it when the limiter is made: it empties the local budgets.
    #[must_use]
    pub fn local_capacity(self, keys: usize) -> Limiter {
        let fallback = Arc::new(self.shared.fallback.with_capacity(keys));
        let shared = LimiterInner {
            fallback,
            ..Arc::unwrap_or_clone(self.shared)
        };
        Limiter {
            shared: Arc::new(shared),
        }
    }

    /// Spends the cost of `policy` ([`Policy::cost`], 1 by default) from the budget of `key`, or nothing.
    ///
    /// The tier of `key` decides which limits apply. A memory store decides before this function returns; another store
    /// decides when the future is polled. Dropping the future of such a store may leave the hit counted or not counted.
    #[inline]
    pub fn check(&self, policy: &Policy, key: &Key) -> Check {
        self.check_cost(policy, key, policy.cost().get())
    }

    /// Spends `cost` units from the budget of `key`, or none of them. A cost of 0 is a peek.
    ///
    /// A cost above the capacity of a limit is `Impossible`; see [`Outcome`](crate::Outcome).
    pub fn check_cost(&self, policy: &Policy, key: &Key, cost: u64) -> Check {
        let hit = Hit::new(policy.for_key(key), key).cost(cost);
        Check::new(self, hit.with_slot_id())
    }

    /// Spends the cost of `policy` from the budget of each key, or nothing at all.
    ///
    /// Each limit counts by the key that its `by` names; limits without `by` count by the primary key.
    ///
    /// ```
    /// use ratelimit_core::{Key, KeySet, Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let limiter = Limiter::in_memory();
    /// let policy = Policy::parse("api", "5/min; 1/min by ip")?;
    /// let home = Key::ip([192, 0, 2, 1].into());
    /// let alice = KeySet::new(Key::new("alice")?).with("ip", home.clone());
    /// let bob = KeySet::new(Key::new("bob")?).with("ip", home);
    ///
    /// assert!(limiter.check_keys(&policy, &alice).await.is_allowed());
    /// assert!(!limiter.check_keys(&policy, &bob).await.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_keys(&self, policy: &Policy, keys: &KeySet) -> Check {
        let cost = policy.cost().get();
        self.check_hit(Hit::for_keys(policy.for_key(keys.primary()), keys).cost(cost))
    }

    /// Reads the budget of `key` without spending: a hit of cost 0.
    ///
    /// The decision reports what is left, and is always allowed. Use [`dry_run`](Limiter::dry_run) to learn whether a cost
    /// would pass. Metrics do not count it.
    #[doc(alias = "remaining")]
    pub fn peek(&self, policy: &Policy, key: &Key) -> Check {
        self.check_cost(policy, key, 0)
    }

    /// Reports whether `cost` units would pass now, and otherwise when, without spending. Metrics do not count it.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let limiter = Limiter::in_memory();
    /// let policy = Policy::parse("upload", "100/min")?;
    /// let alice = Key::new("alice")?;
    ///
    /// assert!(limiter.dry_run(&policy, &alice, 100).await.is_allowed());
    /// assert!(limiter.check_cost(&policy, &alice, 60).await.is_allowed());
    /// assert!(!limiter.dry_run(&policy, &alice, 50).await.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dry run")]
    #[doc(alias = "what if")]
    pub fn dry_run(&self, policy: &Policy, key: &Key, cost: u64) -> Check {
        self.check_hit(Hit::new(policy.for_key(key), key).cost(cost).dry_run())
    }

    /// Decides a hit as it is: tier, cost and keys are those of the hit.
    ///
    /// Under a policy with a concurrency limit, the slot is held until its lease ends. Use
    /// [`reserve`](Limiter::reserve) to release it earlier.
    pub fn check_hit(&self, hit: Hit<'_>) -> Check {
        Check::new(self, hit.with_slot_id())
    }

    /// Decides a hit as it is, and returns a [`Reservation`] of the charge if it is allowed.
    ///
    /// The reservation settles or refunds the charge later, and holds the slot of a concurrency limit.
    #[doc(alias = "charge")]
    #[doc(alias = "permit")]
    pub fn reserve(&self, hit: Hit<'_>) -> Reserve {
        Reserve::new(self, hit.numbered())
    }

    /// Turns the answer of the store into a verdict, and counts it.
    fn verdict(&self, hit: Hit<'_>, answer: Result<Charged, StoreError>) -> Answer {
        let answer = self.enforced(hit, answer);
        if !hit.is_read_only() {
            self.record_verdict(&hit, &answer.verdict);
        }
        answer
    }

    /// The verdict with the wait that is reported for slots, and whether it applies to the key.
    #[inline]
    fn enforced(&self, hit: Hit<'_>, answer: Result<Charged, StoreError>) -> Answer {
        let is_enforced = hit.policy.enforces(hit.key);
        match answer {
            Ok(Charged { decision, marks }) => {
                let decision = with_slot_wait(decision, &hit);
                let verdict = Verdict::Checked(decision.with_enforcement(is_enforced));
                Answer { verdict, marks }
            }
            Err(error) => self.unchecked(hit, is_enforced, &error),
        }
    }

    /// Counts a decision, of the store or of the local store.
    #[inline(always)]
    fn record_decision(&self, hit: &Hit<'_>, decision: &Decision) {
        hit.policy.metrics().count_decision(decision);
        if !decision.is_allowed() {
            // One load in place of a call: 14 of the 1,951 instructions of a denial in memory.
            if LevelFilter::current() >= LevelFilter::DEBUG {
                log_denial(hit, decision, &self.shared.offenders);
            }
            self.count_offender(hit, decision);
        }
    }

    /// Counts a denial by the key of the limit that denied. Out of line: allowed hits do not need it.
    #[inline(never)]
    fn count_offender(&self, hit: &Hit<'_>, decision: &Decision) {
        let LimiterInner {
            offenders, memory, ..
        } = &*self.shared;
        // The time of a Redis decision is not that of this process, so offenders read their own clock then.
        let decided_at = |clock: &Clock| memory.as_ref()?.decided_at(decision.now, clock);
        let policy = hit.policy.shared_name();
        let key = hit.key_of_limit(decision.binding);
        offenders.denied(policy, key, decision.is_enforced, decided_at);
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("store", &self.shared.store)
            .field(
                "failure_mode",
                &self.shared.failure_mode.unwrap_or_default(),
            )
            .field("deny_cache", &self.shared.deny_cache)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::{decision::Outcome, limiter::fallback::STORE_RETRY, store::StoreFuture};

    /// A store that does not answer.
    #[derive(Debug)]
    struct Down;

    impl Store for Down {
        fn hit(&self, _: Hit<'_>) -> StoreFuture<Charged> {
            StoreFuture::ready(Err(StoreError::TimedOut))
        }

        fn reset(&self, _: &Policy, _: &KeySet) -> StoreFuture<()> {
            StoreFuture::ready(Err(StoreError::TimedOut))
        }
    }

    async fn outcome(limiter: &Limiter, limits: &str, cost: u64) -> Outcome {
        let policy = Policy::parse("api", limits).unwrap();
        let key = Key::new("alice").unwrap();
        let verdict = limiter.check_cost(&policy, &key, cost).await;
        verdict.decision().unwrap().outcome
    }

    #[tokio::test]
    async fn a_cost_above_the_share_is_denied_for_a_while_and_one_above_the_limit_for_ever() {
        let instances = NonZeroU32::new(4).unwrap();
        let limiter = Limiter::new(Down).failure_mode(FailureMode::LocalShare { instances });
        for limits in [
            "100/h",
            "fixed_window 100/h",
            "900/s; sliding_window_log 100/h",
        ] {
            let denied = Outcome::Denied {
                retry_after: STORE_RETRY,
            };
            assert_eq!(outcome(&limiter, limits, 26).await, denied, "{limits}");
            assert_eq!(outcome(&limiter, limits, 100).await, denied, "{limits}");
            assert_eq!(
                outcome(&limiter, limits, 101).await,
                Outcome::Impossible,
                "{limits}"
            );
            assert!(outcome(&limiter, limits, 25).await.is_allowed(), "{limits}");
        }
    }

    #[test]
    fn a_memory_store_is_shared_when_another_limiter_or_its_maker_has_it() {
        let store = MemoryStore::new();
        let (one, other) = (Limiter::new(store.clone()), Limiter::new(store.clone()));
        assert!(!one.is_unshared_memory());
        drop(store);
        assert!(!one.is_unshared_memory());
        drop(other);
        assert!(one.is_unshared_memory());

        let alone = Limiter::in_memory().failure_mode(FailureMode::Open);
        assert!(alone.is_unshared_memory());
        let clone = alone.clone();
        assert!(!alone.is_unshared_memory() && !clone.is_unshared_memory());
        assert!(!Limiter::new(Down).is_unshared_memory());
    }
}
