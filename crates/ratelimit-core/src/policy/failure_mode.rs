//! What happens to a hit that the store did not decide.

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

/// What happens to a hit that the store did not decide.
///
/// Chosen for a limiter, and for a policy where that asks for something else:
///
/// ```
/// use ratelimit_core::{FailureMode, Limiter, Policy};
///
/// let limiter = Limiter::in_memory().failure_mode(FailureMode::Open);
/// let login = Policy::parse("login", "5/min")?.with_failure_mode(FailureMode::Closed);
/// assert_eq!(login.failure_mode(), Some(FailureMode::Closed));
/// # Ok::<(), ratelimit_core::InvalidPolicy>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureMode {
    /// A memory store of this process decides with the same limits.
    ///
    /// At any moment it has let pass at least as much as a healthy store would have, and it bounds an
    /// outage: at most the number of instances times the limit passes.
    #[default]
    Local,
    /// A memory store of this process decides with this instance's share of the limits.
    ///
    /// Closer to the limit during an outage, but it refuses what an uneven balance brings too much of.
    ///
    /// A hit that costs more than the share and not more than the limit is denied for a second, after
    /// which the store may be back. It does not pass during the outage: if each instance let one such
    /// hit pass, together they would pass up to the number of instances times the limit.
    LocalShare {
        /// How many instances share the limits.
        instances: NonZeroU32,
    },
    /// Everything passes.
    Open,
    /// Nothing passes.
    Closed,
}

impl FailureMode {
    /// The name in configuration and metrics.
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
    /// The same policy with a failure mode of its own, whatever the limiter's is.
    #[must_use]
    pub fn with_failure_mode(&self, mode: FailureMode) -> Policy {
        self.map_all_tiers(&|settings| settings.failure_mode = Some(mode))
    }

    /// The failure mode of its own, if it has one.
    pub fn failure_mode(&self) -> Option<FailureMode> {
        self.0.settings.failure_mode
    }

    /// The same policy with one instance's share of its limits.
    pub(crate) fn share_of(&self, instances: NonZeroU32) -> Policy {
        let shares = self.limits().iter();
        let shares = shares.map(|limit| share(limit, instances));
        let policy = Policy::from_settings(PolicySettings {
            limits: shares.collect(),
            cost: NonZeroU64::MIN,
            ..self.0.settings.clone()
        });
        policy.unwrap_or_else(|_| self.clone())
    }
}

/// One instance's share of a limit: at least 1, rounded up; a bucket refills as much more slowly.
///
/// A share that cannot be counted exactly is the whole limit.
fn share(limit: &Limit, instances: NonZeroU32) -> Limit {
    let part = limit.capacity().div_ceil(u64::from(instances.get()));
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
