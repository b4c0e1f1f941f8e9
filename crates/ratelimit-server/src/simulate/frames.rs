//! Samples of the budgets during a replay.

use std::collections::VecDeque;

use ratelimit_core::{Decision, Policy};

use super::{trace::TraceHit, traffic::RefillRate};

/// Samples per replay; a chart has no room for more.
const SAMPLES: u64 = 410;

/// Maximum number of lines in a chart; it has as many colours.
const MAX_LINES: usize = 6;

/// The time span of a chart: from the first hit until the budget is full again, or nearly so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeSpan {
    pub(super) start_micros: u64,
    pub(super) end_micros: u64,
}

impl TimeSpan {
    pub(super) fn of(trace: &[TraceHit], policies: &[Policy]) -> TimeSpan {
        let times = || trace.iter().map(|hit| hit.at_micros);
        let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let limits = policies.iter().flat_map(Policy::limits);
        let whole = limits
            .map(|limit| RefillRate::of(limit).full_refill_micros())
            .max();
        // A limit that refills in days must not compress a short trace.
        let most = match last - first {
            0 => u64::MAX,
            span => span.div_ceil(2),
        };
        TimeSpan {
            start_micros: first,
            end_micros: last.saturating_add(whole.unwrap_or(0).min(most)),
        }
    }

    /// The times of the samples, in order.
    fn sample_times(self) -> impl Iterator<Item = u64> {
        let span = u128::from(self.end_micros - self.start_micros);
        let along = move |step: u64| span * u128::from(step) / u128::from(SAMPLES);
        (0..=SAMPLES)
            .map(move |step| self.start_micros + u64::try_from(along(step)).unwrap_or(u64::MAX))
    }
}

/// Remaining budget of one limit for one key over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BudgetLine {
    pub(super) name: String,
    pub(super) limit: u64,
    pub(super) points: Vec<BudgetPoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BudgetPoint {
    pub(super) at_micros: u64,
    pub(super) remaining: u64,
}

/// Collects the samples of one run.
#[derive(Debug)]
pub(super) struct BudgetFrames {
    sample_times: VecDeque<u64>,
    keys: Vec<String>,
    /// All limits of the first key, then all limits of the second, and so on.
    budgets: Vec<BudgetLine>,
}

impl BudgetFrames {
    /// Samples the first keys of `trace`, at most as many as the chart has colours for.
    pub(super) fn new(time_span: TimeSpan, policy: &Policy, trace: &[TraceHit]) -> BudgetFrames {
        let limits = policy.limits();
        let max_keys = (MAX_LINES / limits.len()).max(1);
        let keys = first_keys(trace, max_keys);
        let several_keys = keys.len() > 1;
        let lines = keys.iter().flat_map(|key| {
            limits.iter().map(move |limit| match limits.len() {
                1 => (key.clone(), limit),
                _ if several_keys => (format!("{key}: {limit}"), limit),
                _ => (limit.to_string(), limit),
            })
        });
        let budgets = lines.map(|(name, limit)| BudgetLine {
            name,
            limit: limit.capacity(),
            points: Vec::new(),
        });
        BudgetFrames {
            sample_times: time_span.sample_times().collect(),
            budgets: budgets.collect(),
            keys,
        }
    }

    /// The next sample time, if it is not later than `until`.
    pub(super) fn due(&mut self, until: u64) -> Option<u64> {
        let moment = *self
            .sample_times
            .front()
            .filter(|moment| **moment <= until)?;
        self.sample_times.pop_front();
        Some(moment)
    }

    /// The sampled keys.
    pub(super) fn keys(&self) -> Vec<String> {
        self.keys.clone()
    }

    /// Records the remaining budget of `key` if it is sampled.
    pub(super) fn take(&mut self, key: &str, at_micros: u64, decision: &Decision) {
        let Some(place) = self.keys.iter().position(|followed| followed == key) else {
            return;
        };
        let several = decision.limits().len();
        let budgets = self.budgets.iter_mut().skip(place * several);
        for (budget, limit) in budgets.zip(decision.limits()) {
            budget.points.push(BudgetPoint {
                at_micros,
                remaining: limit.remaining,
            });
        }
    }

    pub(super) fn into_budgets(self) -> Vec<BudgetLine> {
        self.budgets
    }
}

fn first_keys(trace: &[TraceHit], max_keys: usize) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for TraceHit { key, .. } in trace {
        if keys.len() == max_keys {
            break;
        }
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys
}
