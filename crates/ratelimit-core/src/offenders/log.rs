//! The line that names the most denied keys.

use std::{fmt, time::Duration};

use crate::offenders::Offender;

/// When a line is due, and how many keys it names.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogInterval {
    pub(super) every: Duration,
    pub(super) most: usize,
}

pub(super) fn line(policy: &str, worst: &[Offender]) {
    tracing::info!(policy, offenders = %OffenderList(worst), "the most denied keys");
}

/// Keys with their counts: `key:a 12, key:b 7 (at most 2 too many)`.
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
