//! The budgets of a replay over time, with hits or without.

use std::collections::VecDeque;

use ratelimit_core::{Decision, Policy};

use super::{trace::TraceHit, traffic::RefillRate};

/// How often the budgets are looked at, in all: a chart cannot show more.
const SAMPLES: u64 = 410;

/// More lines than this cannot be told apart.
const MAX_LINES: usize = 6;

/// The time that a chart shows: from the first hit until what was spent is back, or nearly so.
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
        // A short trace is not squeezed to the left by a limit that takes days to be whole again.
        let most = match last - first {
            0 => u64::MAX,
            span => span.div_ceil(2),
        };
        TimeSpan {
            start_micros: first,
            end_micros: last.saturating_add(whole.unwrap_or(0).min(most)),
        }
    }

    /// The sample_times at which the budgets are looked at, in order.
    fn sample_times(self) -> impl Iterator<Item = u64> {
        let span = u128::from(self.end_micros - self.start_micros);
        let along = move |step: u64| span * u128::from(step) / u128::from(SAMPLES);
        (0..=SAMPLES)
            .map(move |step| self.start_micros + u64::try_from(along(step)).unwrap_or(u64::MAX))
    }
}

/// What one limit had left for one key, moment by moment.
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

/// The budgets of one run, as they are filmed.
#[derive(Debug)]
pub(super) struct BudgetFrames {
    sample_times: VecDeque<u64>,
    keys: Vec<String>,
    /// For each key in turn, those of all limits.
    budgets: Vec<BudgetLine>,
}

impl BudgetFrames {
    /// Follows the keys that come first in `trace`, as many as can be told apart.
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

    /// The next moment to look at, if it comes no later than `until`.
    pub(super) fn due(&mut self, until: u64) -> Option<u64> {
        let moment = *self
            .sample_times
            .front()
            .filter(|moment| **moment <= until)?;
        self.sample_times.pop_front();
        Some(moment)
    }

    /// The keys that are followed.
    pub(super) fn keys(&self) -> Vec<String> {
        self.keys.clone()
    }

    /// Takes down what `key` has left, if it is followed.
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
