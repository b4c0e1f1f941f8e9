//! A limiter's most denied keys.

use std::sync::Arc;

use crate::limiter::{Limiter, LimiterInner};
use crate::offenders::{KeyDisplay, Offender, Offenders};

impl Limiter {
    /// Counts the most denied keys in `offenders`; [`Offenders::off`] counts none.
    #[must_use]
    pub fn track_offenders(self, offenders: Offenders) -> Limiter {
        let shared = Arc::unwrap_or_clone(self.shared);
        Limiter {
            shared: Arc::new(LimiterInner {
                offenders,
                ..shared
            }),
        }
    }

    /// The keys that a policy denied most lately, at most `most` of them, the worst first.
    ///
    /// Every denied hit counts for one, whatever its cost, by the key of the limit that denied: under `5/min by ip` that
    /// is the address. One that was refused because no store decided does not
    /// count: that is not the key's doing. Nor does one that shadow mode let pass, see
    /// [`shadow_offenders`](Self::shadow_offenders).
    pub fn offenders(&self, policy: &str, most: usize) -> Vec<Offender> {
        self.shared.offenders.top(policy, most)
    }

    /// The keys that a policy in shadow mode would have denied most lately, the worst first.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let (limiter, tried) = (Limiter::in_memory(), Policy::parse("login", "1/min")?.shadow());
    /// for _ in 0..3 {
    ///     assert!(limiter.check(&tried, &Key::new("mallory")?).await.is_allowed());
    /// }
    ///
    /// assert!(limiter.offenders("login", 10).is_empty());
    /// assert_eq!(limiter.shadow_offenders("login", 10)[0].denied, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shadow_offenders(&self, policy: &str, most: usize) -> Vec<Offender> {
        self.shared.offenders.top_shadow(policy, most)
    }

    /// The names of the policies that denied something lately, or would have in shadow mode, in order.
    pub fn policies_with_offenders(&self) -> Vec<String> {
        self.shared.offenders.policies()
    }

    /// Sets the form of keys in log lines: of each denial, at the level `debug`, and of the
    /// [most denied keys](Offenders::log_every). [`KeyDisplay::Fingerprint`] unless set.
    ///
    /// It applies to all clones of this limiter, and to other limiters with the same [`Offenders`].
    pub fn set_log_key_display(&self, display: KeyDisplay) {
        self.shared.offenders.set_log_key_display(display);
    }

    /// Forgets who was denied; budgets stay as they are.
    pub fn clear_offenders(&self) {
        self.shared.offenders.clear();
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        decision::Charged,
        key::Key,
        key_set::KeySet,
        limiter::Limiter,
        offenders::Offenders,
        policy::{FailureMode, Policy},
        store::{Hit, Store, StoreError, StoreFuture},
    };

    #[derive(Debug)]
    struct UnavailableStore;

    impl Store for UnavailableStore {
        fn hit(&self, _: Hit<'_>) -> StoreFuture<Charged> {
            StoreFuture::ready(Err(StoreError::TimedOut))
        }

        fn reset(&self, _: &Policy, _: &KeySet) -> StoreFuture<()> {
            StoreFuture::ready(Ok(()))
        }
    }

    fn denied(limiter: &Limiter, costs: &[u64]) -> u64 {
        let policy = Policy::parse("login", "2/h").unwrap();
        for cost in costs {
            let mut check = limiter.check_cost(&policy, &Key::new("a").unwrap(), *cost);
            let _ = check.take_ready();
        }
        let worst = limiter.offenders("login", 1);
        worst.first().map_or(0, |offender| offender.denied)
    }

    #[test]
    fn a_denied_hit_counts_once_whatever_its_cost() {
        let limiter = Limiter::in_memory();

        assert_eq!(denied(&limiter, &[2, 1, 2, 3]), 3);
        assert_eq!(limiter.policies_with_offenders(), ["login"]);

        limiter.clear_offenders();
        assert!(limiter.policies_with_offenders().is_empty());
    }

    #[test]
    fn a_denial_counts_by_the_key_of_the_limit_that_denied() {
        let limiter = Limiter::in_memory();
        let policy = Policy::parse("login", "9/h; 1/h by ip").unwrap();
        let address = Key::tagged("ip", "203.0.113.7").unwrap();
        for account in ["alice", "bob", "carol"] {
            let keys = KeySet::new(Key::new(account).unwrap()).with("ip", address.clone());
            let _ = limiter
                .check_hit(Hit::for_keys(&policy, &keys))
                .take_ready();
        }

        let worst = limiter.offenders("login", 9);

        assert_eq!(worst.len(), 1);
        assert_eq!((&worst[0].key, worst[0].denied), (&address, 2));
    }

    #[test]
    fn what_passes_and_what_only_looks_is_not_counted() {
        assert_eq!(denied(&Limiter::in_memory(), &[1, 1, 0, 0]), 0);
    }

    #[test]
    fn only_what_a_store_denied_is_counted() {
        let closed = Limiter::new(UnavailableStore).failure_mode(FailureMode::Closed);

        assert_eq!(denied(&closed, &[1, 1, 1]), 0);
        assert_eq!(denied(&Limiter::new(UnavailableStore), &[1, 1, 1]), 1);
    }

    #[test]
    fn settings_outlive_each_other() {
        let off = Limiter::new(UnavailableStore).track_offenders(Offenders::off());

        assert_eq!(denied(&off.failure_mode(FailureMode::Local), &[1, 1, 1]), 0);
    }
}
