//! Which limits can be prefetched, and why others cannot.

use std::fmt;
#[cfg(feature = "tokio")]
use std::time::Duration;

use crate::limit::Limit;
#[cfg(feature = "tokio")]
use crate::{
    algorithm::{Demand, Step as _, WireState},
    limit::with_step,
    time::Timestamp,
};

/// The reason why units of a limit cannot be charged before they are spent.
///
/// ```
/// use ratelimit_core::{InvalidPolicy, NotPrefetchable, Policy};
///
/// let error = Policy::parse("api", "sliding_window_log 100/s")?.with_prefetch(5).unwrap_err();
/// let InvalidPolicy::Prefetch { reason, .. } = error else { panic!("{error}") };
/// assert_eq!(reason, NotPrefetchable::Log);
/// # Ok::<(), InvalidPolicy>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotPrefetchable {
    /// A leaky bucket that delays hits: each unit has a turn of its own.
    Shaping,
    /// A log: a unit would count from the moment of its charge and not of its hit.
    Log,
    /// A concurrency limit: its slots are held and released, not spent.
    Slots,
    /// A penalty box: it refuses a key for denials that another instance saw.
    Penalty,
}

impl fmt::Display for NotPrefetchable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotPrefetchable::Shaping => {
                "it spaces hits, and a prefetched unit has no turn of its own; `police` has none either"
            }
            NotPrefetchable::Log => {
                "it counts each hit at its own moment; a sliding_window_counter can be prefetched"
            }
            NotPrefetchable::Slots => "its slots are held and released, not spent",
            NotPrefetchable::Penalty => "it blocks keys for denials that other instances saw",
        })
    }
}

impl Limit {
    /// Whether units count until the end of a window of the clock.
    #[cfg(feature = "tokio")]
    pub(crate) const fn is_window(&self) -> bool {
        matches!(self, Limit::FixedWindow(_) | Limit::SlidingWindowCounter(_))
    }

    /// The reason why this limit cannot be prefetched, or `None` if it can.
    pub const fn not_prefetchable(&self) -> Option<NotPrefetchable> {
        match self {
            Limit::TokenBucket(_) | Limit::FixedWindow(_) | Limit::SlidingWindowCounter(_) => None,
            Limit::LeakyBucket(bucket) if bucket.is_policing() => None,
            Limit::LeakyBucket(_) => Some(NotPrefetchable::Shaping),
            Limit::SlidingWindowLog(_) => Some(NotPrefetchable::Log),
            Limit::Concurrency(_) => Some(NotPrefetchable::Slots),
            Limit::PenaltyBox(_) => Some(NotPrefetchable::Penalty),
        }
    }

    /// The time from `now` until `cost` units fit into a state with `charged` more units; zero if they fit.
    ///
    /// The state may be older than `now`; its waits end at fixed moments.
    #[cfg(feature = "tokio")]
    pub(crate) fn wait_after(
        &self,
        state: WireState,
        charged: u64,
        cost: u64,
        now: Timestamp,
    ) -> Duration {
        let demand = Demand {
            cost,
            ..Demand::PEEK
        };
        with_step!(self, step => {
            let snapshot = step.decode(state).map(|snapshot| step.charge(snapshot, charged));
            let snapshot = snapshot.filter(|snapshot| {
                cost <= step.limit() && !step.fits(*snapshot, demand)
            });
            snapshot.map_or(Duration::ZERO, |snapshot| step.retry_after(snapshot, demand, now))
        })
    }
}
