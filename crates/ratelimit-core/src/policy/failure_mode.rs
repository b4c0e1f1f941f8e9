//! Failure modes: the decision about a hit that the store did not decide.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use crate::policy::{Policy, PolicySettings};
use crate::{
    algorithm::{
        Concurrency, FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
    },
    limit::Limit,
};

/// The decision about a hit that the store did not decide, because it failed or did not answer in
/// time.
///
/// A limiter has a failure mode, and a policy can override it:
///
/// ```
/// use ratelimit_core::{FailureMode, Limiter, Policy};
///
/// let limiter = Limiter::in_memory().failure_mode(FailureMode::Open);
/// let login = Policy::parse("login", "5/min")?.with_failure_mode(FailureMode::Closed);
/// assert_eq!(login.failure_mode(), Some(FailureMode::Closed));
/// # Ok::<(), ratelimit_core::InvalidPolicy>(())
/// ```
///
/// The verdict is [`Verdict::Unchecked`](crate::Verdict::Unchecked) in each mode. A policy that is
/// not enforced for a key passes in the mode `Closed` as well. `docs/explain/failure.md` compares the
/// modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureMode {
    /// This process decides, from what the store replied last.
    ///
    /// - A key that the store has never answered for starts full.
    /// - Hits that the store certainly did not charge are charged to it when it answers again.
    /// - It bounds an outage: the limit passes, what the other instances let pass meanwhile, and hits whose reply was
    ///   lost. It admits at least as much as a healthy store would have.
    #[default]
    Local,
    /// This process decides, with its share of what was left at the last reply of the store, and of the refill.
    ///
    /// - It stays closer to the limit during an outage, and denies hits where load is balanced
    ///   unevenly.
    /// - A hit that costs more than the share and not more than the limit is denied with a
    ///   `retry_after` of 1 s. If each instance admitted one such hit, together they would admit up
    ///   to the number of instances times the limit.
    LocalShare {
        /// The number of instances that share the limits.
        instances: NonZeroU32,
    },
    /// Every hit passes.
    #[doc(alias = "fail open")]
    #[doc(alias = "fail_open")]
    Open,
    /// Every hit is denied.
    #[doc(alias = "fail closed")]
    #[doc(alias = "fail_closed")]
    Closed,
}

impl FailureMode {
    /// The name in configuration, metrics and log lines.
    pub const fn as_str(self) -> &'static str {
        match self {
            FailureMode::Local => "local",
            FailureMode::LocalShare { .. } => "local_share",
            FailureMode::Open => "open",
            FailureMode::Closed => "closed",
        }
    }
}

impl Policy {
    /// Sets a failure mode for this policy and its tiers, in place of that of the limiter.
    #[must_use]
    pub fn with_failure_mode(&self, mode: FailureMode) -> Policy {
        self.map_all_tiers(&|settings| settings.failure_mode = Some(mode))
    }

    /// The failure mode of this policy; `None` means that of the limiter.
    pub fn failure_mode(&self) -> Option<FailureMode> {
        self.0.settings.failure_mode
    }

    /// The policy with the share of one instance of its limits, for [`FailureMode::LocalShare`].
    pub(crate) fn share_of(&self, instances: NonZeroU32) -> Policy {
        let shares = self.limits().iter();
        let shares = shares.map(|limit| share(limit, instances));
        let policy = Policy::from_settings(PolicySettings {
            limits: shares.collect(),
            // A share may be below the default cost, which would make the policy invalid. Hits name
            // their cost here.
            cost: NonZeroU64::MIN,
            ..self.0.settings.clone()
        });
        policy.unwrap_or_else(|_| self.clone())
    }
}

/// The share of one instance: the capacity divided by `instances`, rounded up, and a bucket refills
/// as much more slowly.
///
/// A share that cannot be counted exactly is the whole limit. A penalty box is not divided.
fn share(limit: &Limit, instances: NonZeroU32) -> Limit {
    let part = limit.capacity().div_ceil(u64::from(instances.get()));
    // The refill stays a whole number: the share gains as many tokens, in a period that is longer.
    let slower: Duration = limit.period() * instances.get();
    let period = limit.period();
    let shared = match limit {
        Limit::TokenBucket(bucket) => {
            TokenBucket::new(part, bucket.refill(), slower).map(Limit::from)
        }
        Limit::LeakyBucket(bucket) => {
            LeakyBucket::new(part, bucket.outflow(), slower).map(|shared| {
                if bucket.is_policing() {
                    shared.without_delay()
                } else {
                    shared
                }
                .into()
            })
        }
        Limit::FixedWindow(_) => FixedWindow::new(part, period).map(Limit::from),
        Limit::SlidingWindowLog(log) => SlidingWindowLog::new(part, period).map(|shared| {
            if log.counts_denied() {
                shared.counting_denied()
            } else {
                shared
            }
            .into()
        }),
        Limit::SlidingWindowCounter(_) => SlidingWindowCounter::new(part, period).map(Limit::from),
        Limit::Concurrency(slots) => Concurrency::new(part, slots.lease()).map(Limit::from),
        Limit::PenaltyBox(_) => Ok(*limit),
    };
    shared.unwrap_or(*limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_to_the_whole_or_a_little_more() {
        let four = NonZeroU32::new(4).unwrap();
        for (whole, part) in [
            ("10/s burst 100", "token_bucket 10/4s burst 25"),
            (
                "leaky_bucket 10/s queue 3 police",
                "leaky_bucket 10/4s queue 1 police",
            ),
            ("fixed_window 10/min", "fixed_window 3/min"),
            (
                "sliding_window_log 1/s count-denied",
                "sliding_window_log 1/s count-denied",
            ),
            (
                "sliding_window_counter 100/h",
                "sliding_window_counter 25/h",
            ),
            ("token_bucket 1/366d", "token_bucket 1/366d"),
            ("concurrency 10 lease 5s", "concurrency 3 lease 5s"),
            ("penalty_box 3/min for 1h", "penalty_box 3/min for 1h"),
        ] {
            let limit: Limit = whole.parse().unwrap();
            assert_eq!(share(&limit, four).to_string(), part);
        }
    }
}
