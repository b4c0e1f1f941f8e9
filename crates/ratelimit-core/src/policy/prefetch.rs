//! The share of each limit that an instance may prefetch.

use crate::limit::Limit;
use crate::policy::{InvalidPolicy, MAX_PREFETCH_PERCENT, Policy};

impl Policy {
    /// Lets limiters over a network store charge units of hot keys before they are spent, for all tiers, in blocks of
    /// `percent` of the smallest limit, 1 to 50.
    ///
    /// - A hot key is decided from memory. Nothing passes beyond the limit.
    /// - The error is on the other side: a hit may be denied while other instances hold units that they have not spent,
    ///   at most two blocks each.
    /// - It needs the feature `tokio` and a tokio runtime; without them it has no effect.
    /// - Keys that are not hot, and every key of a [`MemoryStore`](crate::MemoryStore), are decided as without it.
    ///
    /// `docs/guides/prefetch.md` has the bounds.
    ///
    /// ```
    /// use ratelimit_core::Policy;
    ///
    /// let api = Policy::parse("api", "100000/s")?.with_prefetch(5)?;
    /// assert_eq!(api.prefetch(), Some(5));
    ///
    /// let log = Policy::parse("log", "sliding_window_log 100/s")?.with_prefetch(5);
    /// assert!(log.unwrap_err().to_string().starts_with("sliding_window_log 100/s cannot be prefetched"));
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`InvalidPolicy::PrefetchShare`] when `percent` is not from 1 to 50
    /// - [`InvalidPolicy::Prefetch`] when a limit of the policy or of a tier cannot be prefetched: a leaky bucket that
    ///   shapes, a sliding window log, a concurrency limit, a penalty box
    #[doc(alias = "lease")]
    #[doc(alias = "batch")]
    pub fn with_prefetch(&self, percent: u32) -> Result<Policy, InvalidPolicy> {
        let mut settings = self.0.settings.clone();
        for tier in settings.tiers.policies() {
            *tier = tier.with_prefetch(percent)?;
        }
        settings.prefetch = Some(percent);
        Policy::from_settings(settings)
    }

    /// The share of each limit that may be prefetched, in percent; `None` unless
    /// [`with_prefetch`](Policy::with_prefetch) was called.
    #[inline]
    pub fn prefetch(&self) -> Option<u32> {
        self.0.settings.prefetch
    }
}

/// Checks the share, and that every limit can be prefetched.
pub(super) fn validate(percent: u32, limits: &[Limit]) -> Result<(), InvalidPolicy> {
    if percent == 0 || percent > MAX_PREFETCH_PERCENT {
        return Err(InvalidPolicy::PrefetchShare { percent });
    }
    let refused = limits
        .iter()
        .find_map(|limit| Some((*limit, limit.not_prefetchable()?)));
    match refused {
        Some((limit, reason)) => Err(InvalidPolicy::Prefetch { limit, reason }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_cannot_be_prefetched_are_refused_with_their_name_and_the_reason() {
        for (limits, named) in [
            ("leaky_bucket 10/s", "leaky_bucket 10/s"),
            ("10/s; sliding_window_log 100/s", "sliding_window_log 100/s"),
            ("10/s; concurrency 5 lease 1s", "concurrency 5 lease 1s"),
            (
                "10/s; penalty_box 5/min for 10min",
                "penalty_box 5/min for 10min",
            ),
        ] {
            let policy = Policy::parse("api", limits).unwrap();
            let error = policy.with_prefetch(5).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{named} cannot be prefetched: ")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_limit_or_tier_that_is_added_later_must_be_prefetchable_too() {
        let api = Policy::parse("api", "1000/s; fixed_window 9000/min").unwrap();
        let api = api.with_prefetch(5).unwrap();
        assert!(api.with_tier("pro", "sliding_window_log 100/s").is_err());
        assert!(
            api.with_limit("leaky_bucket 10/s".parse::<Limit>().unwrap())
                .is_err()
        );
        let tiered = api.with_tier("pro", "leaky_bucket 10/s police").unwrap();
        assert_eq!(tiered.tier("pro").prefetch(), Some(5));
    }

    #[test]
    fn the_share_is_from_1_to_50_percent() {
        let api = Policy::parse("api", "1000/s").unwrap();
        assert!(api.with_prefetch(0).is_err() && api.with_prefetch(51).is_err());
        assert!(api.with_prefetch(1).is_ok() && api.with_prefetch(50).is_ok());
    }
}
