//! Samples of the budgets during a replay.

use std::collections::VecDeque;

use ratelimit_core::{Decision, Limit, Policy};

use super::{
    budget_line::BudgetLine,
    time_span::TimeSpan,
    trace::{TraceHit, budget_key},
};

/// Maximum number of lines in a chart. A single key with more limits has a line for each of them.
const MAX_LINES: usize = 6;

/// Collects the samples of one run.
#[derive(Debug)]
pub(super) struct BudgetFrames {
    time_span: TimeSpan,
    sample_times: VecDeque<u64>,
    keys: Vec<SampledKey>,
    /// All limits of the first key, then all limits of the second, and so on.
    budgets: Vec<BudgetLine>,
}

#[derive(Clone, Debug)]
struct SampledKey {
    text: String,
    /// The index of its first line.
    first_line: usize,
}

impl BudgetFrames {
    /// Samples the first keys of `trace`, as many as a chart has lines for.
    pub(super) fn new(time_span: TimeSpan, policy: &Policy, trace: &[TraceHit]) -> BudgetFrames {
        let max_keys = (MAX_LINES / policy.limits().len()).max(1);
        let texts = first_keys(trace, max_keys);
        let has_several_keys = texts.len() > 1;
        let mut frames = BudgetFrames {
            time_span,
            sample_times: time_span.sample_times().collect(),
            keys: Vec::new(),
            budgets: Vec::new(),
        };
        for text in texts {
            frames.keys.push(SampledKey {
                text: text.to_owned(),
                first_line: frames.budgets.len(),
            });
            let limits = limits_of(policy, text);
            let names = limits.iter().map(|limit| match limits.len() {
                1 => text.to_owned(),
                _ if has_several_keys => format!("{text}: {limit}"),
                _ => limit.to_string(),
            });
            let lines = limits.iter().zip(names);
            let lines = lines.map(|(limit, name)| BudgetLine::new(name, limit.capacity()));
            frames.budgets.extend(lines);
        }
        frames
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
        self.keys.iter().map(|key| key.text.clone()).collect()
    }

    /// Records the remaining budget of `key` if it is sampled.
    pub(super) fn take(&mut self, key: &str, at_micros: u64, decision: &Decision) {
        let Some(sampled) = self.keys.iter().find(|sampled| sampled.text == key) else {
            return;
        };
        let budgets = self.budgets.iter_mut().skip(sampled.first_line);
        for (budget, limit) in budgets.zip(decision.limits()) {
            budget.push(self.time_span, at_micros, limit.remaining);
        }
    }

    pub(super) fn into_budgets(self) -> Vec<BudgetLine> {
        self.budgets
    }
}

/// The limits of the tier that a key is in.
fn limits_of<'p>(policy: &'p Policy, key: &str) -> &'p [Limit] {
    match budget_key(key) {
        Ok(key) => policy.for_key(&key).limits(),
        Err(_) => policy.limits(),
    }
}

fn first_keys(trace: &[TraceHit], max_keys: usize) -> Vec<&str> {
    let mut keys: Vec<&str> = Vec::new();
    for TraceHit { key, .. } in trace {
        if keys.len() == max_keys {
            break;
        }
        if !keys.contains(&&**key) {
            keys.push(key);
        }
    }
    keys
}
