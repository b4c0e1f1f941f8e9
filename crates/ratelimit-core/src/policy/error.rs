//! Why a name and limits cannot be a policy.

use std::{fmt, num::NonZeroU64};

use crate::policy::{MAX_KEY_NAME, MOST_LIMITS, Policy, throttle::MAX_PERCENT};
use crate::{
    algorithm::InvalidLimit,
    limit::{Limit, ParseLimitError},
};

/// Why a name and limits cannot be a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidPolicy {
    /// The name is not 1 to 100 of `A-Z a-z 0-9 . _ : @ -`.
    Name {
        /// The refused name.
        name: String,
    },
    /// A policy has 1 to 8 limits.
    Count {
        /// How many were given.
        limits: usize,
    },
    /// A limit can never pay what a hit costs.
    Cost {
        /// What a hit costs.
        cost: NonZeroU64,
        /// The limit that is smaller.
        limit: Limit,
    },
    /// The text of the limits has a mistake.
    Text(ParseLimitError),
    /// A key's name is not 1 to 64 of `A-Z a-z 0-9 . _ : @ -`.
    KeyName {
        /// The refused name.
        name: String,
    },
    /// A penalty box counts what other limits deny, and there are none.
    OnlyPenalties,
    /// A percentage is too large.
    Percent {
        /// The refused percentage.
        percent: u32,
    },
    /// A limit with what its throttle mode adds cannot be counted exactly.
    Ceiling(InvalidLimit),
}

impl fmt::Display for InvalidPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidPolicy::Name { name } => write!(
                f,
                "the policy name {name:?} must be 1 to {} of A-Z a-z 0-9 . _ : @ -",
                Policy::MAX_NAME
            ),
            InvalidPolicy::Count { limits } => {
                write!(f, "a policy has 1 to {MOST_LIMITS} limits, not {limits}")
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
        }
    }
}

impl std::error::Error for InvalidPolicy {}
