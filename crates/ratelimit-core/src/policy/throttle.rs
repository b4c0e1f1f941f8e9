//! What happens beyond a limit.

use std::fmt;

use super::group::Overdraft;
use crate::signal::Signal;

/// The most that a throttle mode may add to a limit, in percent of it.
pub(super) const HIGHEST_PERCENT: u32 = 10_000;

/// What happens beyond a limit.
///
/// ```
/// use ratelimit_core::{Policy, Signal, Throttle};
///
/// let soft = Policy::parse("api", "100/min")?.throttle(Throttle::Soft { percent: 10 })?;
///
/// let few_in_flight = Signal::in_flight(200);
/// let elastic = Throttle::Elastic { percent: 50, signal: few_in_flight };
/// let elastic = Policy::parse("search", "100/min")?.throttle(elastic)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Throttle {
    /// Nothing passes.
    #[default]
    Hard,
    /// So many percent of the limit more pass, and are marked as over.
    Soft {
        /// How many percent, rounded down to whole units.
        percent: u32,
    },
    /// So many percent more pass while a signal says that there is room.
    Elastic {
        /// How many percent, rounded down to whole units.
        percent: u32,
        /// Says whether there is room.
        signal: Signal,
    },
}

impl Throttle {
    pub(super) const fn percent(&self) -> u32 {
        match self {
            Throttle::Hard => 0,
            Throttle::Soft { percent } | Throttle::Elastic { percent, .. } => *percent,
        }
    }

    /// Whether a hit may go beyond the limit now.
    pub(crate) fn overdraft(&self) -> Overdraft {
        match self {
            Throttle::Elastic { signal, .. } if !signal.has_room() => Overdraft::Refused,
            _ => Overdraft::Allowed,
        }
    }

    /// The load signal, where there is one.
    pub const fn signal(&self) -> Option<&Signal> {
        match self {
            Throttle::Elastic { signal, .. } => Some(signal),
            _ => None,
        }
    }
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Throttle::Hard => f.write_str("hard"),
            Throttle::Soft { percent } => write!(f, "soft {percent}%"),
            Throttle::Elastic { percent, signal } => write!(f, "elastic {percent}% {signal}"),
        }
    }
}
