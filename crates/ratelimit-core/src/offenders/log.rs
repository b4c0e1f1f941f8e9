//! The log line that names the most denied keys.

use std::{fmt, time::Duration};

use crate::offenders::Offender;

/// When a line is due, and how many keys it has.
///
/// The interval counts for each policy by itself: a busy policy does not suppress the line of
/// another.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogInterval {
    /// The least time between two lines of one policy.
    pub(super) every: Duration,
    /// The most keys in one line.
    pub(super) most: usize,
}

/// Logs the denials of a policy since its last line, and its offenders, in one line at the level `info`.
pub(super) fn line(policy: &str, is_shadow: bool, denied: u64, worst: &[Offender]) {
    let offenders = OffenderList(worst);
    if is_shadow {
        tracing::info!(policy, denied, %offenders, shadow = true, "the most denied keys in shadow mode");
    } else {
        tracing::info!(policy, denied, %offenders, "the most denied keys");
    }
}

/// The field `offenders` of the line: `key:a 12, key:b 7 (at most 2 too many)`.
struct OffenderList<'a>(&'a [Offender]);

impl fmt::Display for OffenderList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, offender) in self.0.iter().enumerate() {
            let joint = if index == 0 { "" } else { ", " };
            write!(f, "{joint}{} {}", offender.key, offender.denied)?;
            if offender.error > 0 {
                write!(f, " (at most {} too many)", offender.error)?;
            }
        }
        Ok(())
    }
}
