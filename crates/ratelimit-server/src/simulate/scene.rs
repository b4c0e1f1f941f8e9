//! The hits of a run in time: bins, edges of windows, and departures.

use ratelimit_core::{Algorithm, Policy};

use super::{
    hit_outcome::HitOutcome,
    replay::Replay,
    time_span::{TimeSpan, signed},
};
use crate::micros::micros;

/// Bins of a run.
pub(crate) const BINS: usize = 90;

/// A limit with more edges in the time span has none: they would cover the chart.
const MAX_EDGES: u64 = 60;

/// Departures within the same part of the time span are one.
const DEPARTURE_PARTS: u64 = 1_000;

/// Hits of one bin by outcome: allowed, delayed, over, and denied with impossible ones.
pub(crate) type Bin = [u64; 4];

/// The hits of a run in bins, which divide the time span evenly.
pub(crate) fn bins(time_span: TimeSpan, replay: &Replay) -> Vec<Bin> {
    let mut bins = vec![Bin::default(); BINS];
    for hit in &replay.hits {
        let place = time_span.part_of(signed(hit.at_micros), BINS as u64);
        let row = match hit.outcome {
            HitOutcome::Allowed => 0,
            HitOutcome::Delayed => 1,
            HitOutcome::Over => 2,
            HitOutcome::Denied | HitOutcome::Impossible => 3,
        };
        if let Some(bin) = usize::try_from(place)
            .ok()
            .and_then(|place| bins.get_mut(place))
        {
            bin[row] += 1;
        }
    }
    bins
}

/// The edges of the windows of `policy` within the time span. Windows are aligned to the epoch.
pub(crate) fn window_edges(time_span: TimeSpan, policy: &Policy) -> Vec<i64> {
    let mut edges = Vec::new();
    for limit in policy.limits() {
        let has_windows = matches!(
            limit.algorithm(),
            Algorithm::FixedWindow | Algorithm::SlidingWindowCounter
        );
        let period = signed(micros(limit.period()));
        if !has_windows || period == 0 {
            continue;
        }
        let first = time_span.start_micros.max(0).div_euclid(period) + 1;
        let last = (time_span.end_micros - 1).div_euclid(period);
        if last >= first && first.abs_diff(last) < MAX_EDGES {
            edges.extend((first..=last).map(|window| window * period));
        }
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// The times at which hits leave the queue of a leaky bucket, within the time span.
pub(crate) fn departures(time_span: TimeSpan, policy: &Policy, replay: &Replay) -> Vec<i64> {
    let mut limits = policy.limits().iter();
    if !limits.any(|limit| limit.algorithm() == Algorithm::LeakyBucket) {
        return Vec::new();
    }
    let passed = replay.hits.iter();
    let passed = passed.filter(|hit| hit.outcome.passes() && hit.cost > 0);
    let leaves = passed.map(|hit| signed(hit.at_micros.saturating_add(hit.wait_micros)));
    let mut leaves: Vec<i64> = leaves.filter(|at| *at <= time_span.end_micros).collect();
    leaves.sort_unstable();
    leaves.dedup_by_key(|at| time_span.part_of(*at, DEPARTURE_PARTS));
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::replay::ReplayedHit;

    const TIME_SPAN: TimeSpan = TimeSpan {
        start_micros: -100_000,
        end_micros: 8_900_000,
    };

    fn policy(text: &str) -> Policy {
        Policy::parse("p", text).unwrap()
    }

    fn replay(hits: &[(u64, HitOutcome, u64)]) -> Replay {
        let hits = hits
            .iter()
            .map(|(at_micros, outcome, wait_micros)| ReplayedHit {
                at_micros: *at_micros,
                cost: 1,
                outcome: *outcome,
                wait_micros: *wait_micros,
            });
        Replay {
            hits: hits.collect(),
            budgets: Vec::new(),
        }
    }

    #[test]
    fn every_hit_is_in_one_bin() {
        let hits = HitOutcome::ALL.map(|outcome| (0, outcome, 0));
        let last = (8_900_000, HitOutcome::Over, 0);

        let bins = bins(TIME_SPAN, &replay(&[&hits[..], &[last]].concat()));

        assert_eq!(bins.len(), 90);
        assert_eq!((bins[1], bins[89]), ([1, 1, 1, 2], [0, 0, 1, 0]));
        assert_eq!(bins.iter().flatten().sum::<u64>(), 6);
    }

    #[test]
    fn edges_are_those_of_windows_inside_the_span() {
        let edges = |text| window_edges(TIME_SPAN, &policy(text));

        assert_eq!(
            edges("fixed_window 5/2s"),
            [2_000_000, 4_000_000, 6_000_000, 8_000_000]
        );
        assert_eq!(
            edges("sliding_window_counter 5/4s; fixed_window 9/8s"),
            [4_000_000, 8_000_000]
        );
        assert!(edges("token_bucket 5/s; sliding_window_log 5/s").is_empty());
        assert!(
            edges("fixed_window 5/1ms").is_empty(),
            "too many to be drawn"
        );
        assert!(edges("fixed_window 5/d").is_empty());
    }

    #[test]
    fn departures_are_those_of_a_leaky_bucket() {
        let hits = [
            (0, HitOutcome::Allowed, 0),
            (1, HitOutcome::Delayed, 999_999),
            (2, HitOutcome::Delayed, 1_000_000),
            (3, HitOutcome::Denied, 7),
            (4, HitOutcome::Delayed, 9_000_000),
        ];
        let leaves = |text| departures(TIME_SPAN, &policy(text), &replay(&hits));

        assert_eq!(leaves("leaky_bucket 1/s queue 3"), [0, 1_000_000]);
        assert!(leaves("token_bucket 1/s").is_empty());
    }
}
