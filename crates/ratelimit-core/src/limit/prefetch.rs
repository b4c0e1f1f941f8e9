//! Which limits can be prefetched, and why others cannot.

use std::fmt;

use crate::limit::Limit;

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
}
