//! A named set of limits, decided together.

mod budget;
mod failure_mode;

use std::{
    fmt,
    num::{NonZeroU32, NonZeroU64},
    sync::{Arc, OnceLock},
};

pub(crate) use self::budget::Budget;
#[cfg(feature = "redis")]
pub(crate) use self::budget::{capped, left_to_live};
pub use self::failure_mode::FailureMode;
use crate::{
    key::is_plain,
    limit::{InvalidText, Limit},
    meter::Meters,
};

/// The most limits of one policy.
pub(crate) const MOST_LIMITS: usize = 8;
pub(crate) const LONGEST_NAME: usize = 100;

/// A named set of limits, decided together: when one denies, none is charged.
///
/// The name is part of the stored key, so a policy that keeps its name keeps what was spent when
/// its numbers change. A limit is known by its place: state of another algorithm at that place is
/// forgotten, state of the same is converted.
///
/// ```
/// use ratelimit_core::{FixedWindow, Policy, TokenBucket};
///
/// let written = Policy::parse("login", "5/min; 20/h")?;
/// let built = Policy::new("login", TokenBucket::per_minute(5))?.and(TokenBucket::per_hour(20))?;
/// assert_eq!(written, built);
/// # Ok::<(), ratelimit_core::InvalidPolicy>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: Arc<str>,
    limits: Box<[Limit]>,
    terms: Terms,
    meters: OnceLock<Meters>,
}

/// What a policy says besides its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    failure_mode: Option<FailureMode>,
    cost: NonZeroU64,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            failure_mode: None,
            cost: NonZeroU64::MIN,
        }
    }
}

impl Policy {
    /// A policy of one limit.
    ///
    /// # Errors
    ///
    /// When `name` is not 1 to 100 of `A-Z a-z 0-9 . _ : @ -`.
    pub fn new(name: &str, limit: impl Into<Limit>) -> Result<Policy, InvalidPolicy> {
        Policy::of(name, [limit.into()])
    }

    /// A policy of several limits.
    ///
    /// # Errors
    ///
    /// When `name` is not 1 to 100 of `A-Z a-z 0-9 . _ : @ -`, or there are no limits or more than 8.
    pub fn of(
        name: &str,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Result<Policy, InvalidPolicy> {
        let plain = name.bytes().all(is_plain);
        if name.is_empty() || name.len() > LONGEST_NAME || !plain {
            return Err(InvalidPolicy::Name {
                name: name.to_owned(),
            });
        }
        let limits: Box<[Limit]> = limits.into_iter().collect();
        if limits.is_empty() || limits.len() > MOST_LIMITS {
            return Err(InvalidPolicy::Count {
                limits: limits.len(),
            });
        }
        Ok(Policy::made_of(name.into(), limits, Terms::default()))
    }

    fn made_of(name: Arc<str>, limits: Box<[Limit]>, terms: Terms) -> Policy {
        Policy(Arc::new(Inner {
            name,
            limits,
            terms,
            meters: OnceLock::new(),
        }))
    }

    /// A policy from the text of its limits, joined by `;`.
    ///
    /// # Errors
    ///
    /// As [`Policy::of`], and when the text is not that of limits.
    pub fn parse(name: &str, limits: &str) -> Result<Policy, InvalidPolicy> {
        let limits = Limit::parse_several(limits).map_err(InvalidPolicy::Text)?;
        Policy::of(name, limits)
    }

    /// The same policy with one more limit.
    ///
    /// # Errors
    ///
    /// When it has 8 limits already, or the new one can never pay what a hit costs.
    pub fn and(&self, limit: impl Into<Limit>) -> Result<Policy, InvalidPolicy> {
        let limits = self.limits().iter().copied().chain([limit.into()]);
        let policy = Policy::of(self.name(), limits)?;
        policy.with(self.0.terms).costing(self.0.terms.cost)
    }

    fn with(&self, terms: Terms) -> Policy {
        Policy::made_of(Arc::clone(&self.0.name), self.0.limits.clone(), terms)
    }

    /// The same policy with a failure mode of its own, whatever the limiter's is.
    #[must_use]
    pub fn on_failure(&self, mode: FailureMode) -> Policy {
        self.with(Terms {
            failure_mode: Some(mode),
            ..self.0.terms
        })
    }

    /// The same policy, whose hits cost that much where their caller names no cost; 1 unless set.
    ///
    /// # Errors
    ///
    /// When a limit is smaller than that, so that no hit would ever pass.
    pub fn costing(&self, cost: NonZeroU64) -> Result<Policy, InvalidPolicy> {
        let mut limits = self.limits().iter();
        if let Some(limit) = limits.find(|limit| limit.limit() < cost.get()) {
            let limit = *limit;
            return Err(InvalidPolicy::Cost { cost, limit });
        }
        Ok(self.with(Terms {
            cost,
            ..self.0.terms
        }))
    }

    /// What a hit costs where its caller names no cost.
    pub fn cost(&self) -> NonZeroU64 {
        self.0.terms.cost
    }

    /// The failure mode of its own, if it has one.
    pub fn failure_mode(&self) -> Option<FailureMode> {
        self.0.terms.failure_mode
    }

    /// The same policy with one instance's share of its limits.
    pub(crate) fn shared_by(&self, instances: NonZeroU32) -> Policy {
        let shares = self.limits().iter();
        let shares = shares.map(|limit| failure_mode::share(limit, instances));
        Policy::made_of(Arc::clone(&self.0.name), shares.collect(), Terms::default())
    }

    pub(crate) fn meters(&self) -> &Meters {
        self.0
            .meters
            .get_or_init(|| Meters::new(&self.0.name, &self.0.limits))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its limits, in order.
    pub fn limits(&self) -> &[Limit] {
        &self.0.limits
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.0.name
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Policy) -> bool {
        self.name() == other.name()
            && self.limits() == other.limits()
            && self.0.terms == other.0.terms
    }
}

impl Eq for Policy {}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, limit) in self.limits().iter().enumerate() {
            let joint = if place == 0 { "" } else { "; " };
            write!(f, "{joint}{limit}")?;
        }
        Ok(())
    }
}

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
    Text(InvalidText),
}

impl fmt::Display for InvalidPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidPolicy::Name { name } => write!(
                f,
                "the policy name {name:?} must be 1 to {LONGEST_NAME} of A-Z a-z 0-9 . _ : @ -"
            ),
            InvalidPolicy::Count { limits } => {
                write!(f, "a policy has 1 to {MOST_LIMITS} limits, not {limits}")
            }
            InvalidPolicy::Cost { cost, limit } => {
                let most = limit.limit();
                write!(
                    f,
                    "a hit of cost {cost} never passes {limit}, which holds {most} at most"
                )
            }
            InvalidPolicy::Text(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for InvalidPolicy {}
