//! The errors of policies.

use std::{fmt, num::NonZeroU64};

use crate::policy::{MAX_KEY_NAME, MAX_LIMITS, MAX_PERCENT, MAX_PREFETCH_PERCENT, Policy};
use crate::{
    algorithm::InvalidLimit,
    limit::{Limit, NotPrefetchable, ParseLimitError},
};

/// The reason why a name, limits and settings cannot be a policy.
///
/// ```
/// use ratelimit_core::{InvalidPolicy, Policy};
///
/// let nameless = Policy::parse("", "10/s").unwrap_err();
/// assert!(matches!(nameless, InvalidPolicy::Name { .. }));
///
/// let mistake = Policy::parse("api", "10/s; 5/x").unwrap_err();
/// assert!(mistake.to_string().ends_with("at column 9 of \"10/s; 5/x\""));
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidPolicy {
    /// The name is not 1 to 100 bytes of `A-Z a-z 0-9 . _ : @ -`.
    Name {
        /// The rejected name.
        name: String,
    },
    /// There are no limits, or more than 8.
    Count {
        /// The number of limits.
        limits: usize,
    },
    /// The capacity of a limit is below the default cost of a hit, so that no hit could ever pass.
    Cost {
        /// The default cost.
        cost: NonZeroU64,
        /// The limit that is too small.
        limit: Limit,
    },
    /// The text of the limits has a mistake.
    Text(ParseLimitError),
    /// The name of a key is not 1 to 64 bytes of `A-Z a-z 0-9 . _ : @ -`.
    KeyName {
        /// The rejected name.
        name: String,
    },
    /// Every limit is a penalty box. A box counts the denials of other limits, and there are none.
    OnlyPenalties,
    /// The headroom of a throttle is above 10,000 percent, or an enforcement above 100.
    Percent {
        /// The rejected percentage.
        percent: u32,
    },
    /// A limit with the headroom of the throttle cannot be counted exactly.
    Ceiling(InvalidLimit),
    /// The share to prefetch is not from 1 to 50 percent.
    PrefetchShare {
        /// The rejected percentage.
        percent: u32,
    },
    /// A limit cannot be prefetched.
    Prefetch {
        /// The limit.
        limit: Limit,
        /// Why its units cannot be charged before they are spent.
        reason: NotPrefetchable,
    },
}

impl fmt::Display for InvalidPolicy {
    /// Writes a lower-case phrase with the rejected value and the bound.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidPolicy::Name { name } => write!(
                f,
                "the policy name {name:?} must be 1 to {} of A-Z a-z 0-9 . _ : @ -",
                Policy::MAX_NAME
            ),
            InvalidPolicy::Count { limits } => {
                write!(f, "a policy has 1 to {MAX_LIMITS} limits, not {limits}")
            }
            InvalidPolicy::Cost { cost, limit } => {
                let most = limit.capacity();
                write!(
                    f,
                    "a hit of cost {cost} never passes {limit}, which holds {most} at most"
                )
            }
            InvalidPolicy::Text(why) => why.fmt(f),
            InvalidPolicy::KeyName { name } => write!(
                f,
                "the key name {name:?} must be 1 to {MAX_KEY_NAME} of A-Z a-z 0-9 . _ : @ -"
            ),
            InvalidPolicy::OnlyPenalties => f.write_str(
                "a penalty box counts what other limits deny: add a limit such as 10/min",
            ),
            InvalidPolicy::Percent { percent } => write!(
                f,
                "{percent} percent is too much: a throttle mode adds at most {MAX_PERCENT}, and \
                 at most 100 are enforced"
            ),
            InvalidPolicy::Ceiling(why) => {
                write!(f, "with what the throttle mode adds, {why}")
            }
            InvalidPolicy::PrefetchShare { percent } => write!(
                f,
                "{percent} percent cannot be prefetched: the share is from 1 to {MAX_PREFETCH_PERCENT}"
            ),
            InvalidPolicy::Prefetch { limit, reason } => {
                write!(f, "{limit} cannot be prefetched: {reason}")
            }
        }
    }
}

debug_as_display!(InvalidPolicy);

impl std::error::Error for InvalidPolicy {}
