//! The budgets of a replay over time, with hits or without.

use std::collections::VecDeque;

use ratelimit_core::{Decision, Policy};

use super::{trace::Asked, traffic::Pace};

/// How often the budgets are looked at, in all: a chart cannot show more.
const MOMENTS: u64 = 410;

/// More lines than this cannot be told apart.
const MOST_LINES: usize = 6;

/// The time that a chart shows: from the first hit until what was spent is back, or nearly so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scene {
    pub(crate) start_micros: u64,
    pub(crate) end_micros: u64,
}

impl Scene {
    pub(super) fn of(trace: &[Asked], policies: &[Policy]) -> Scene {
        let times = || trace.iter().map(|asked| asked.at_micros);
        let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let limits = policies.iter().flat_map(Policy::limits);
        let whole = limits.map(|limit| Pace::of(limit).whole_micros()).max();
        // A short trace is not squeezed to the left by a limit that takes days to be whole again.
        let most = match last - first {
            0 => u64::MAX,
            span => span.div_ceil(2),
        };
        Scene {
            start_micros: first,
            end_micros: last.saturating_add(whole.unwrap_or(0).min(most)),
        }
    }

    /// The moments at which the budgets are looked at, in order.
    fn moments(self) -> impl Iterator<Item = u64> {
        let span = u128::from(self.end_micros - self.start_micros);
        let along = move |step: u64| span * u128::from(step) / u128::from(MOMENTS);
        (0..=MOMENTS)
            .map(move |step| self.start_micros + u64::try_from(along(step)).unwrap_or(u64::MAX))
    }
}

/// What one limit had left for one key, moment by moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) name: String,
    pub(crate) limit: u64,
    pub(crate) points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) at_micros: u64,
    pub(crate) remaining: u64,
}

/// The budgets of one run, as they are filmed.
#[derive(Debug)]
pub(super) struct Film {
    moments: VecDeque<u64>,
    keys: Vec<String>,
    /// For each key in turn, those of all limits.
    budgets: Vec<Budget>,
}

impl Film {
    /// Follows the keys that come first in `trace`, as many as can be told apart.
    pub(super) fn new(scene: Scene, policy: &Policy, trace: &[Asked]) -> Film {
        let limits = policy.limits();
        let most = (MOST_LINES / limits.len()).max(1);
        let keys = first_keys(trace, most);
        let several_keys = keys.len() > 1;
        let lines = keys.iter().flat_map(|key| {
            limits.iter().map(move |limit| match limits.len() {
                1 => (key.clone(), limit),
                _ if several_keys => (format!("{key}: {limit}"), limit),
                _ => (limit.to_string(), limit),
            })
        });
        let budgets = lines.map(|(name, limit)| Budget {
            name,
            limit: limit.capacity(),
            points: Vec::new(),
        });
        Film {
            moments: scene.moments().collect(),
            budgets: budgets.collect(),
            keys,
        }
    }

    /// The next moment to look at, if it comes no later than `until`.
    pub(super) fn due(&mut self, until: u64) -> Option<u64> {
        let moment = *self.moments.front().filter(|moment| **moment <= until)?;
        self.moments.pop_front();
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
            budget.points.push(Point {
                at_micros,
                remaining: limit.remaining,
            });
        }
    }

    pub(super) fn into_budgets(self) -> Vec<Budget> {
        self.budgets
    }
}

fn first_keys(trace: &[Asked], most: usize) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for Asked { key, .. } in trace {
        if keys.len() == most {
            break;
        }
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys
}
