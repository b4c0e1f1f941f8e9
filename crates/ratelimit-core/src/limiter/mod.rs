//! Decides hits, and what happens when the store does not answer.

#[cfg(feature = "acquire")]
mod acquire;
mod check;
mod deny_cache;
mod offenders;
mod reservation;
mod reset;
mod settle;
mod verdict;
#[cfg(feature = "acquire")]
mod wait_queue;

use std::{any::Any, fmt, sync::Arc, time::Duration};

#[cfg(feature = "acquire")]
pub use self::acquire::AcquireError;
pub use self::{
    check::Check,
    reservation::{Reservation, Reserve},
    settle::SettleError,
    verdict::{UncheckedReason, Verdict},
};
#[cfg(feature = "acquire")]
use crate::limiter::wait_queue::WaitQueues;
use crate::limiter::{deny_cache::DenyCache, verdict::ErrorChain};
use crate::{
    decision::Decision,
    key::Key,
    key_set::KeySet,
    offenders::Offenders,
    policy::{FailureMode, Policy},
    store::{Hit, MemoryStore, Store, StoreError},
    time::{Clock, Timestamp},
};

/// A store that went away is asked again within this time.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Decides hits against a store, and without it when it does not answer.
///
/// Clones share everything and are cheap.
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
/// assert!(!limiter.check(&policy, &alice).await.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<LimiterInner>,
}

#[derive(Clone)]
struct LimiterInner {
    store: Arc<dyn Store>,
    /// The store once more, where it is one in memory: asked by name, it writes its answer in place.
    memory: Option<MemoryStore>,
    failure_mode: FailureMode,
    local: MemoryStore,
    offenders: Offenders,
    deny_cache: Arc<DenyCache>,
    #[cfg(feature = "acquire")]
    wait_queues: Arc<WaitQueues>,
}

impl Limiter {
    /// A limiter over any store.
    pub fn new(store: impl Store) -> Limiter {
        let deny_cache = DenyCache::new(store.manual_clock());
        let shared = LimiterInner {
            memory: (&store as &dyn Any).downcast_ref().cloned(),
            store: Arc::new(store),
            failure_mode: FailureMode::default(),
            local: MemoryStore::new(),
            offenders: Offenders::new(),
            deny_cache: Arc::new(deny_cache),
            #[cfg(feature = "acquire")]
            wait_queues: Arc::default(),
        };
        Limiter {
            shared: Arc::new(shared),
        }
    }

    /// A limiter whose budgets live in this process.
    pub fn in_memory() -> Limiter {
        Limiter::new(MemoryStore::new())
    }

    /// Whether its budgets live in a [`MemoryStore`] that neither a clone of the limiter nor one of the store shares.
    ///
    /// A framework that makes its services once for each worker can tell by it that a worker would count
    /// alone.
    pub fn is_unshared_memory(&self) -> bool {
        // The limiter itself has two: `store` and `memory`.
        let memory = self.shared.memory.as_ref();
        memory.is_some_and(|memory| memory.clone_count() == 2)
            && Arc::strong_count(&self.shared) == 1
            && Arc::strong_count(&self.shared.store) == 1
    }

    /// What happens to a hit that the store did not decide; [`FailureMode::Local`] unless set.
    #[must_use]
    pub fn failure_mode(self, mode: FailureMode) -> Limiter {
        let shared = LimiterInner {
            failure_mode: mode,
            ..Arc::unwrap_or_clone(self.shared)
        };
        Limiter {
            shared: Arc::new(shared),
        }
    }

    /// Where the local failure modes count; a [`MemoryStore`] of its own with its defaults, unless set.
    #[must_use]
    pub fn local_store(self, store: MemoryStore) -> Limiter {
        let shared = LimiterInner {
            local: store,
            ..Arc::unwrap_or_clone(self.shared)
        };
        Limiter {
            shared: Arc::new(shared),
        }
    }

    /// Spends what a hit of `policy` costs of `key`'s budget, one unit unless it says otherwise, or nothing.
    #[inline]
    pub fn check(&self, policy: &Policy, key: &Key) -> Check {
        self.check_cost(policy, key, policy.cost().get())
    }

    /// Spends `cost` units of `key`'s budget, or none of them.
    pub fn check_cost(&self, policy: &Policy, key: &Key, cost: u64) -> Check {
        let hit = Hit::new(policy.for_key(key), key).cost(cost);
        Check::new(self, &hit.with_slot_id())
    }

    /// Spends one unit of the budget of each key, or nothing at all.
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

    /// Looks at `key`'s budget without spending; metrics count no look.
    pub fn peek(&self, policy: &Policy, key: &Key) -> Check {
        self.check_cost(policy, key, 0)
    }

    /// Tells whether `cost` units would pass now, and else when, without spending; metrics do not
    /// count it.
    pub fn dry_run(&self, policy: &Policy, key: &Key, cost: u64) -> Check {
        self.check_hit(Hit::new(policy.for_key(key), key).cost(cost).dry_run())
    }

    /// Decides a hit as it stands: the tier, the cost and the keys are its own.
    ///
    /// Under a policy with a concurrency limit, the slot is held until its lease ends. Use
    /// [`charge`](Limiter::reserve) to give it back earlier.
    pub fn check_hit(&self, hit: Hit<'_>) -> Check {
        Check::new(self, &hit.with_slot_id())
    }

    /// Decides a hit as it stands, and tells what was charged, so that it can be changed later.
    pub fn reserve(&self, hit: Hit<'_>) -> Reserve {
        Reserve::new(self, hit.numbered())
    }

    fn verdict(&self, hit: Hit<'_>, answer: Result<Decision, StoreError>) -> Verdict {
        let is_enforced = hit.policy.enforces(hit.key);
        let verdict = match answer {
            Ok(decision) => Verdict::Checked(decision.with_enforcement(is_enforced)),
            Err(error) => self.unchecked(hit, is_enforced, &error),
        };
        if !hit.is_read_only() {
            self.count(&hit, &verdict);
        }
        verdict
    }

    /// Tells operators what became of a hit.
    fn count(&self, hit: &Hit<'_>, verdict: &Verdict) {
        let meters = hit.policy.metrics();
        match verdict.decision() {
            Some(decision) => self.count_decided(hit, decision),
            None => meters.count_without_decision(verdict.is_allowed()),
        }
        if let Verdict::Unchecked { mode, reason, .. } = verdict {
            meters.count_unchecked(mode.as_str(), reason.as_str());
        }
    }

    #[inline]
    fn count_decided(&self, hit: &Hit<'_>, decision: &Decision) {
        hit.policy.metrics().count_decision(decision);
        if !decision.is_allowed() {
            self.count_offender(hit, decision.now);
        }
    }

    #[inline(never)]
    fn count_offender(&self, hit: &Hit<'_>, now: Timestamp) {
        let LimiterInner {
            offenders, memory, ..
        } = &*self.shared;
        let decided_at = |clock: &Clock| memory.as_ref()?.decided_at(now, clock);
        offenders.denied(hit.policy.shared_name(), hit.key, decided_at);
    }

    /// The one place where a store's failure becomes an answer.
    fn unchecked(&self, hit: Hit<'_>, is_enforced: bool, error: &StoreError) -> Verdict {
        let policy = hit.policy;
        tracing::debug!(policy = policy.name(), error = %ErrorChain(error), "not decided by the store");
        let mode = match policy.failure_mode().unwrap_or(self.shared.failure_mode) {
            FailureMode::Closed if !is_enforced => FailureMode::Open,
            mode => mode,
        };
        let local = &self.shared.local;
        let decision = match mode {
            FailureMode::Local => Some(local.check(&hit)),
            FailureMode::LocalShare { instances } => {
                let share = policy.share_of(instances);
                let decision = local.check(&hit.with_policy(&share));
                // A cost above the share may pass when the store is back.
                Some(if hit.can_ever_fit() {
                    decision.possible_after(STORE_RETRY)
                } else {
                    decision
                })
            }
            FailureMode::Open | FailureMode::Closed => None,
        };
        Verdict::Unchecked {
            mode,
            reason: UncheckedReason::of(error),
            decision: decision.map(|decision| decision.with_enforcement(is_enforced)),
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("store", &self.shared.store)
            .field("failure_mode", &self.shared.failure_mode)
            .field("deny_cache", &self.shared.deny_cache)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::{decision::Outcome, store::StoreFuture};

    /// A store that does not answer.
    #[derive(Debug)]
    struct Down;

    impl Store for Down {
        fn hit(&self, _: Hit<'_>) -> StoreFuture<Decision> {
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
