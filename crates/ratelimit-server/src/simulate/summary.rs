//! The numbers of a run.

use std::{collections::BTreeMap, fmt};

use super::{
    decimal,
    hit_outcome::{HitOutcome, OutcomeCounts},
    replay::Replay,
    trace::TraceHit,
};

/// The numbers of a run. `Display` writes them as one line:
///
/// `200 hits of 3 keys in 12.5s: 120 allowed, 0 delayed, 0 over, 80 denied (40.0 %), 0 impossible; 1 key denied, longest wait 0.9s`
///
/// The units stand beside the hits if a hit costs more or less than one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) hits: OutcomeCounts,
    units: OutcomeCounts,
    /// The keys with the most denials first.
    pub(crate) keys: Vec<KeySummary>,
    span_micros: u64,
    /// The longest delay, or the longest time after which a denied hit passes.
    pub(crate) max_wait_micros: u64,
}

/// The hits of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySummary {
    pub(crate) key: String,
    pub(crate) passed: u64,
    pub(crate) denied: u64,
}

impl Summary {
    pub(crate) fn new(trace: &[TraceHit], replay: &Replay) -> Summary {
        let mut hits = OutcomeCounts::default();
        let mut units = OutcomeCounts::default();
        let mut keys: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (of_trace, hit) in trace.iter().zip(&replay.hits) {
            hits.add(hit.outcome, 1);
            units.add(hit.outcome, hit.cost);
            let (passed, denied) = keys.entry(&of_trace.key).or_default();
            *(if hit.outcome.passes() { passed } else { denied }) += 1;
        }
        let keys = keys.into_iter().map(|(key, (passed, denied))| KeySummary {
            key: key.to_owned(),
            passed,
            denied,
        });
        let mut keys: Vec<KeySummary> = keys.collect();
        keys.sort_by(|one, other| {
            let order = |key: &KeySummary| (key.denied, key.passed);
            order(other).cmp(&order(one))
        });
        let times = || replay.hits.iter().map(|hit| hit.at_micros);
        let waits = replay.hits.iter().map(|hit| hit.wait_micros);
        Summary {
            hits,
            units,
            keys,
            span_micros: times().max().unwrap_or(0) - times().min().unwrap_or(0),
            max_wait_micros: waits.max().unwrap_or(0),
        }
    }

    /// The number of keys with a denied hit.
    pub(crate) fn keys_denied(&self) -> usize {
        self.keys.iter().filter(|key| key.denied > 0).count()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.hits.total();
        let units = |count: u64| {
            let counts = format!(" ({count} unit{})", plural(count));
            if self.units == self.hits {
                String::new()
            } else {
                counts
            }
        };
        write!(
            f,
            "{total} hit{}{} of {} key{} in {}s: ",
            plural(total),
            units(self.units.total()),
            self.keys.len(),
            plural(self.keys.len() as u64),
            decimal::seconds(self.span_micros),
        )?;
        for outcome in HitOutcome::ALL {
            if outcome != HitOutcome::Allowed {
                f.write_str(", ")?;
            }
            let count = self.hits.get(outcome);
            write!(
                f,
                "{count} {}{}",
                outcome.as_str(),
                units(self.units.get(outcome))
            )?;
            if outcome == HitOutcome::Denied {
                let per_mille = u128::from(count) * 1_000 / u128::from(total.max(1));
                write!(f, " ({}.{} %)", per_mille / 10, per_mille % 10)?;
            }
        }
        let denied = self.keys_denied();
        write!(
            f,
            "; {denied} key{} denied, longest wait {}s",
            plural(denied as u64),
            decimal::seconds(self.max_wait_micros),
        )
    }
}

const fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::replay::ReplayedHit;

    fn summary(hits: &[(u64, &str, u64, HitOutcome, u64)]) -> Summary {
        let trace = hits
            .iter()
            .map(|(at_micros, key, cost, ..)| TraceHit {
                at_micros: *at_micros,
                key: (*key).to_owned(),
                cost: Some(*cost),
            })
            .collect::<Vec<_>>();
        let hits = hits
            .iter()
            .map(|(at_micros, _, cost, outcome, wait_micros)| ReplayedHit {
                at_micros: *at_micros,
                cost: *cost,
                outcome: *outcome,
                wait_micros: *wait_micros,
            })
            .collect();
        let budgets = Vec::new();
        Summary::new(&trace, &Replay { hits, budgets })
    }

    #[test]
    fn every_hit_is_counted_once() {
        let hits = [
            (0, "a", 1, HitOutcome::Allowed, 0),
            (1_000_000, "a", 1, HitOutcome::Delayed, 70_000),
            (2_000_000, "b", 1, HitOutcome::Denied, 900_000),
            (2_500_000, "b", 1, HitOutcome::Denied, 400_000),
        ];

        assert_eq!(
            summary(&hits).to_string(),
            "4 hits of 2 keys in 2.5s: 1 allowed, 1 delayed, 0 over, 2 denied (50.0 %), 0 impossible; \
             1 key denied, longest wait 0.9s"
        );
        let keys = summary(&hits).keys;
        let keys: Vec<_> = keys
            .iter()
            .map(|key| (&*key.key, key.passed, key.denied))
            .collect();
        assert_eq!(keys, [("b", 0, 2), ("a", 2, 0)]);
    }

    #[test]
    fn units_stand_beside_hits_where_they_differ() {
        let hits = [
            (0, "a", 3, HitOutcome::Over, 0),
            (0, "a", 9, HitOutcome::Impossible, 0),
            (0, "a", 0, HitOutcome::Allowed, 0),
        ];

        assert_eq!(
            summary(&hits).to_string(),
            "3 hits (12 units) of 1 key in 0s: 1 allowed (0 units), 0 delayed (0 units), 1 over (3 units), \
             0 denied (0 units) (0.0 %), 1 impossible (9 units); 1 key denied, longest wait 0s"
        );
    }

    #[test]
    fn nothing_can_be_summed_up() {
        assert!(
            summary(&[])
                .to_string()
                .starts_with("0 hits of 0 keys in 0s: 0 allowed")
        );
    }
}
