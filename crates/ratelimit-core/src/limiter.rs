//! Decides hits, and what happens when the store does not answer.

#[cfg(feature = "acquire")]
mod acquire;
mod charge;
mod check;
mod denials;
mod offenders;
mod redeem;
mod reset;
#[cfg(feature = "acquire")]
mod turns;
mod verdict;

use std::{any::Any, fmt, sync::Arc, time::Duration};

#[cfg(feature = "acquire")]
pub use self::acquire::TooLong;
#[cfg(feature = "acquire")]
use self::turns::Turns;
pub use self::{
    charge::{Charge, Charging},
    check::Check,
    denials::DenyCache,
    redeem::NotRedeemed,
    verdict::{Reason, Verdict},
};
use self::{denials::Denials, verdict::Causes};
use crate::{
    decision::Decision,
    key::Key,
    keys::Keys,
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
/// let alice = Key::explicit("alice")?;
///
/// assert!(limiter.check(&policy, &alice).await.is_allowed());
/// assert!(limiter.check(&policy, &alice).await.is_allowed());
/// assert!(!limiter.check(&policy, &alice).await.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

#[derive(Clone)]
struct Shared {
    store: Arc<dyn Store>,
    /// The store once more, where it is one in memory: asked by name, it writes its answer in place.
    memory: Option<MemoryStore>,
    failure_mode: FailureMode,
    local: MemoryStore,
    offenders: Offenders,
    denials: Arc<Denials>,
    #[cfg(feature = "acquire")]
    turns: Arc<Turns>,
}

impl Limiter {
    /// A limiter over any store.
    pub fn new(store: impl Store) -> Limiter {
        let denials = Denials::new(DenyCache::default(), store.manual_clock());
        let shared = Shared {
            memory: (&store as &dyn Any).downcast_ref().cloned(),
            store: Arc::new(store),
            failure_mode: FailureMode::default(),
            local: MemoryStore::new(),
            offenders: Offenders::new(),
            denials: Arc::new(denials),
            #[cfg(feature = "acquire")]
            turns: Arc::default(),
        };
        Limiter {
            shared: Arc::new(shared),
        }
    }

    /// A limiter whose budgets live in this process.
    pub fn in_memory() -> Limiter {
        Limiter::new(MemoryStore::new())
    }

    /// Whether its budgets live in a [`MemoryStore`] that no clone of the limiter shares.
    ///
    /// A framework that makes its services once for each worker can tell by it that a worker would count
    /// alone.
    pub fn is_unshared_memory(&self) -> bool {
        self.shared.memory.is_some()
            && Arc::strong_count(&self.shared) == 1
            && Arc::strong_count(&self.shared.store) == 1
    }

    /// What happens to a hit that the store did not decide; [`FailureMode::Local`] unless set.
    #[must_use]
    pub fn on_failure(self, mode: FailureMode) -> Limiter {
        let shared = Shared {
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
        let shared = Shared {
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
        Check::new(self, &hit.fresh_slot())
    }

    /// Spends one unit of the budget of each key, or nothing at all.
    ///
    /// ```
    /// use ratelimit_core::{Key, Keys, Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let limiter = Limiter::in_memory();
    /// let policy = Policy::parse("api", "5/min; 1/min by ip")?;
    /// let home = Key::ip([192, 0, 2, 1].into());
    /// let alice = Keys::new(Key::explicit("alice")?).by("ip", home.clone());
    /// let bob = Keys::new(Key::explicit("bob")?).by("ip", home);
    ///
    /// assert!(limiter.check_by(&policy, &alice).await.is_allowed());
    /// assert!(!limiter.check_by(&policy, &bob).await.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_by(&self, policy: &Policy, keys: &Keys) -> Check {
        let cost = policy.cost().get();
        self.hit(Hit::by(policy.for_key(keys.own()), keys).cost(cost))
    }

    /// Looks at `key`'s budget without spending; metrics count no look.
    pub fn look(&self, policy: &Policy, key: &Key) -> Check {
        self.check_cost(policy, key, 0)
    }

    /// Tells whether `cost` units would pass now, and else when, without spending; metrics do not
    /// count it.
    pub fn foresee(&self, policy: &Policy, key: &Key, cost: u64) -> Check {
        self.hit(Hit::new(policy.for_key(key), key).cost(cost).foresee())
    }

    /// Decides a hit as it stands: the tier, the cost and the keys are its own.
    ///
    /// Under a policy with a concurrency limit, the slot is held until its lease ends. Use
    /// [`charge`](Limiter::charge) to give it back earlier.
    pub fn hit(&self, hit: Hit<'_>) -> Check {
        Check::new(self, &hit.fresh_slot())
    }

    /// Decides a hit as it stands, and tells what was charged, so that it can be changed later.
    pub fn charge(&self, hit: Hit<'_>) -> Charging {
        Charging::new(self, hit.numbered())
    }

    fn verdict(&self, hit: Hit<'_>, answer: Result<Decision, StoreError>) -> Verdict {
        let is_enforced = hit.policy.enforces(hit.key);
        let verdict = match answer {
            Ok(decision) => Verdict::Checked(decision.enforced(is_enforced)),
            Err(error) => self.unchecked(hit, is_enforced, &error),
        };
        if !hit.is_look() {
            self.count(&hit, &verdict);
        }
        verdict
    }

    /// Tells operators what became of a hit.
    fn count(&self, hit: &Hit<'_>, verdict: &Verdict) {
        let meters = hit.policy.meters();
        match verdict.decision() {
            Some(decision) => self.count_decided(hit, decision),
            None => meters.undecided(verdict.is_allowed()),
        }
        if let Verdict::Unchecked { mode, reason, .. } = verdict {
            meters.unchecked(mode.as_str(), reason.as_str());
        }
    }

    #[inline]
    fn count_decided(&self, hit: &Hit<'_>, decision: &Decision) {
        hit.policy.meters().decided(decision);
        if !decision.is_allowed() {
            self.count_offender(hit, decision.now);
        }
    }

    #[inline(never)]
    fn count_offender(&self, hit: &Hit<'_>, now: Timestamp) {
        let Shared {
            offenders, memory, ..
        } = &*self.shared;
        let decided_at = |clock: &Clock| memory.as_ref()?.decided_at(now, clock);
        offenders.denied(hit.policy.shared_name(), hit.key, decided_at);
    }

    /// The one place where a store's failure becomes an answer.
    fn unchecked(&self, hit: Hit<'_>, is_enforced: bool, error: &StoreError) -> Verdict {
        let policy = hit.policy;
        tracing::debug!(policy = policy.name(), error = %Causes(error), "not decided by the store");
        let mode = match policy.failure_mode().unwrap_or(self.shared.failure_mode) {
            FailureMode::Closed if !is_enforced => FailureMode::Open,
            mode => mode,
        };
        let local = &self.shared.local;
        let decision = match mode {
            FailureMode::Local => Some(local.decide(&hit)),
            FailureMode::LocalShare { instances } => {
                let share = policy.shared_by(instances);
                let decision = local.decide(&hit.under(&share));
                // A cost above the share may pass when the store is back.
                Some(if hit.is_possible() {
                    decision.possible_after(STORE_RETRY)
                } else {
                    decision
                })
            }
            FailureMode::Open | FailureMode::Closed => None,
        };
        Verdict::Unchecked {
            mode,
            reason: Reason::of(error),
            decision: decision.map(|decision| decision.enforced(is_enforced)),
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("store", &self.shared.store)
            .field("failure_mode", &self.shared.failure_mode)
            .field("deny_cache", &self.shared.denials)
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

        fn reset(&self, _: &Policy, _: &Keys) -> StoreFuture<()> {
            StoreFuture::ready(Err(StoreError::TimedOut))
        }
    }

    async fn outcome(limiter: &Limiter, limits: &str, cost: u64) -> Outcome {
        let policy = Policy::parse("api", limits).unwrap();
        let key = Key::explicit("alice").unwrap();
        let verdict = limiter.check_cost(&policy, &key, cost).await;
        verdict.decision().unwrap().outcome
    }

    #[tokio::test]
    async fn a_cost_above_the_share_is_denied_for_a_while_and_one_above_the_limit_for_ever() {
        let instances = NonZeroU32::new(4).unwrap();
        let limiter = Limiter::new(Down).on_failure(FailureMode::LocalShare { instances });
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
}
