//! What happens beyond a limit.

use std::fmt;

use super::group::Overdraft;

/// The most that a throttle mode may add to a limit, in percent of it.
pub(super) const HIGHEST_PERCENT: u32 = 10_000;

/// What happens beyond a limit.
///
/// ```
/// use ratelimit_core::{Policy, Throttle};
///
/// let soft = Policy::parse("api", "100/min")?.throttle(Throttle::Soft { percent: 10 })?;
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
}

impl Throttle {
    pub(super) const fn percent(&self) -> u32 {
        match self {
            Throttle::Hard => 0,
            Throttle::Soft { percent } => *percent,
        }
    }

    /// Whether a hit may go beyond the limit now.
    pub(crate) fn overdraft(&self) -> Overdraft {
        Overdraft::Allowed
    }
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Throttle::Hard => f.write_str("hard"),
            Throttle::Soft { percent } => write!(f, "soft {percent}%"),
        }
    }
}
