//! The budget of a rate.

use ratelimit_core::{FixedWindow, InvalidPolicy, Policy, Throttle};

use crate::rule::unit::Rate;

/// The headrooms that are tried, in percent of the limit. A large limit over a long period has room for less.
const HEADROOMS: [u32; 6] = [MAX_HEADROOM, 1_000, 100, 10, 1, 0];

/// The highest headroom, in percent of the limit.
pub(super) const MAX_HEADROOM: u32 = 10_000;

/// A rate as policies: a fixed window with headroom in which readings beyond the limit are recorded.
///
/// | | policy | over |
/// |---|---|---|
/// | a request | `charge`, without the headroom | the cost does not fit |
/// | a reading | `charge`, with the headroom | more than the limit is recorded |
/// | a look | `look`, a dry run of 1 without the headroom | more than the limit is recorded |
///
/// `look` has a limit of one more: 1 fits there exactly if no more than the rate's own limit is recorded. It has one unit
/// more left than the rate.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) rate: Rate,
    pub(crate) charge: Policy,
    pub(crate) look: Policy,
    /// The largest reading that is recorded in full: the headroom, which any reading fits until the limit is exceeded.
    pub(crate) max_reading: u64,
}

impl Window {
    /// The budget of `rate` under the policy `name`.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] when the rate is 0 or cannot be counted exactly.
    pub(crate) fn new(name: &str, rate: Rate) -> Result<Window, InvalidPolicy> {
        let limit = u64::from(rate.requests);
        let (charge, headroom) = with_headroom(name, rate, limit)?;
        let (look, _) = with_headroom(name, rate, limit + 1)?;
        Ok(Window {
            rate,
            charge,
            look,
            max_reading: (limit * u64::from(headroom) / 100).max(limit),
        })
    }
}

/// A policy of one window with the highest headroom that can be counted, and that headroom in percent.
fn with_headroom(name: &str, rate: Rate, limit: u64) -> Result<(Policy, u32), InvalidPolicy> {
    let window = FixedWindow::new(limit, rate.period()).map_err(InvalidPolicy::Ceiling)?;
    Ok(soften(&Policy::new(name, window)?, MAX_HEADROOM))
}

/// The policy with the highest headroom up to `max` that can be counted, and that headroom in percent.
pub(super) fn soften(policy: &Policy, max: u32) -> (Policy, u32) {
    let percents = HEADROOMS.into_iter().filter(|percent| *percent <= max);
    let mut softened = percents.filter_map(|percent| {
        let policy = policy.with_throttle(Throttle::Soft { percent }).ok()?;
        Some((policy, percent))
    });
    softened.next().unwrap_or_else(|| (policy.clone(), 0))
}
