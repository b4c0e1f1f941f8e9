//! The time span of a chart.

use ratelimit_core::{Policy, Timestamp};

use super::{trace::TraceHit, traffic::RefillRate};

/// Samples per replay; a chart has no room for more.
const SAMPLES: u64 = 410;

/// The first hit stands a twentieth of the span after the start, so that a full budget is seen before it.
const LEAD_IN: u64 = 20;

/// The time span of a chart: from a little before the first hit until the budget is full again, or nearly so.
///
/// It starts before 0 if the first hit is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeSpan {
    pub(crate) start_micros: i64,
    pub(crate) end_micros: i64,
}

impl TimeSpan {
    pub(crate) fn of(trace: &[TraceHit], policies: &[Policy]) -> TimeSpan {
        let first = trace.first().map_or(0, |hit| hit.at_micros);
        let last = trace.last().map_or(first, |hit| hit.at_micros);
        let limits = policies.iter().flat_map(Policy::limits);
        let whole = limits
            .map(|limit| RefillRate::of(limit).full_refill_micros())
            .max();
        // A limit that refills in days must not compress a short trace.
        let most = match last - first {
            0 => u64::MAX,
            span => span.div_ceil(2),
        };
        let end = last.saturating_add(whole.unwrap_or(0).min(most));
        let end = end.min(Timestamp::MAX.as_micros()).max(first + 1);
        TimeSpan {
            start_micros: signed(first) - signed((end - first).div_ceil(LEAD_IN)),
            end_micros: signed(end),
        }
    }

    /// The length, which is never 0.
    pub(crate) fn length_micros(self) -> u64 {
        self.start_micros.abs_diff(self.end_micros).max(1)
    }

    /// The place of a moment among `parts` equal parts of the span: the last for all that is later.
    pub(crate) fn part_of(self, at_micros: i64, parts: u64) -> u64 {
        let along = at_micros.saturating_sub(self.start_micros);
        let along = u128::from(u64::try_from(along).unwrap_or(0));
        let part = along * u128::from(parts) / u128::from(self.length_micros());
        u64::try_from(part)
            .unwrap_or(u64::MAX)
            .min(parts.saturating_sub(1))
    }

    /// The times of the samples, in order. There is none before 0.
    pub(super) fn sample_times(self) -> impl Iterator<Item = u64> {
        let start = u64::try_from(self.start_micros).unwrap_or(0);
        let end = u64::try_from(self.end_micros).unwrap_or(0);
        let span = u128::from(end.saturating_sub(start));
        let along = move |step: u64| span * u128::from(step) / u128::from(SAMPLES);
        (0..=SAMPLES).map(move |step| start + u64::try_from(along(step)).unwrap_or(u64::MAX))
    }
}

/// Times are below 2^53.
pub(super) fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}
