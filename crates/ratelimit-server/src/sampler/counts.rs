//! Counts of checks, made consistent.

use std::{
    ops::{Index, IndexMut},
    time::Duration,
};

/// The failure modes as the label `mode` names them, in the order of [`CheckCounts::fallback`].
pub(crate) const FALLBACK_MODES: [&str; 4] = ["local", "local_share", "open", "closed"];

/// A set of counters that the sampler adds up for each policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// `rate_limiter_requests_total{allowed="true"}`, in shadow mode or not.
    Fitting,
    /// `rate_limiter_requests_total{allowed="false"}` without `shadow`.
    Denied,
    /// `rate_limiter_requests_total{allowed="false",shadow="true"}`.
    WouldDeny,
    /// `rate_limiter_over_total`.
    Over,
    /// `rate_limiter_deny_cached_total`.
    DenyCached,
    /// `rate_limiter_prefetch_hits_total`.
    Prefetched,
    /// `rate_limiter_unchecked_total`, by the place of its `mode` in [`FALLBACK_MODES`].
    Fallback(usize),
}

impl Part {
    fn index(self) -> usize {
        match self {
            Part::Fitting => 0,
            Part::Denied => 1,
            Part::WouldDeny => 2,
            Part::Over => 3,
            Part::DenyCached => 4,
            Part::Prefetched => 5,
            Part::Fallback(mode) => 6 + mode,
        }
    }
}

/// The sum of the counters of each part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PartCounts([u64; 6 + FALLBACK_MODES.len()]);

impl Index<Part> for PartCounts {
    type Output = u64;

    fn index(&self, part: Part) -> &u64 {
        &self.0[part.index()]
    }
}

impl IndexMut<Part> for PartCounts {
    fn index_mut(&mut self, part: Part) -> &mut u64 {
        &mut self.0[part.index()]
    }
}

impl PartCounts {
    /// The increase since `before`. A counter that became smaller has no increase.
    pub(super) fn since(&self, before: &PartCounts) -> PartCounts {
        PartCounts(std::array::from_fn(|part| {
            self.0[part].saturating_sub(before.0[part])
        }))
    }

    /// All checks: each is counted by exactly one counter of `rate_limiter_requests_total`.
    pub(super) fn checks(&self) -> u64 {
        self[Part::Fitting] + self[Part::Denied] + self[Part::WouldDeny]
    }
}

/// Checks by outcome, and by who decided them: counts, or rates in units of 1/1024 a second.
///
/// - `allowed`, `over` and `denied` are disjoint and add up to all checks.
/// - `would_deny` is a part of `allowed`.
/// - `deny_cached`, `prefetched` and `fallback` are disjoint. The store decided the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckCounts {
    pub(crate) allowed: u64,
    pub(crate) over: u64,
    pub(crate) denied: u64,
    pub(crate) would_deny: u64,
    pub(crate) deny_cached: u64,
    pub(crate) prefetched: u64,
    pub(crate) fallback: [u64; FALLBACK_MODES.len()],
}

impl CheckCounts {
    /// The checks of a second, from the increase of each part.
    ///
    /// A check increments several counters one after the other, and the sampler may read between them. A part of the checks that
    /// exceeds them is therefore left in `carry` for the next second, so no number is ever below 0.
    pub(super) fn settle(increase: &PartCounts, carry: &mut PartCounts) -> CheckCounts {
        let mut take = |part: Part, bound: u64| {
            let pending = carry[part] + increase[part];
            let taken = pending.min(bound);
            carry[part] = pending - taken;
            taken
        };
        let (fitting, denied) = (increase[Part::Fitting], increase[Part::Denied]);
        let would_deny = increase[Part::WouldDeny];
        let over = take(Part::Over, fitting);
        let deny_cached = take(Part::DenyCached, denied + would_deny);
        let mut rest = increase.checks() - deny_cached;
        let prefetched = take(Part::Prefetched, rest);
        rest -= prefetched;
        let fallback = std::array::from_fn(|mode| {
            let taken = take(Part::Fallback(mode), rest);
            rest -= taken;
            taken
        });
        CheckCounts {
            // A check that a policy in shadow mode would deny passes.
            allowed: fitting - over + would_deny,
            over,
            denied,
            would_deny,
            deny_cached,
            prefetched,
            fallback,
        }
    }

    pub(crate) fn checks(&self) -> u64 {
        self.allowed + self.over + self.denied
    }

    /// The checks that the store did not decide.
    pub(crate) fn unchecked(&self) -> u64 {
        self.fallback.iter().sum()
    }

    /// The checks that the store decided at the time of the check.
    pub(crate) fn by_store(&self) -> u64 {
        let others = self.deny_cached + self.prefetched + self.unchecked();
        self.checks().saturating_sub(others)
    }

    pub(super) fn add(&mut self, other: &CheckCounts) {
        self.allowed += other.allowed;
        self.over += other.over;
        self.denied += other.denied;
        self.would_deny += other.would_deny;
        self.deny_cached += other.deny_cached;
        self.prefetched += other.prefetched;
        for (sum, count) in self.fallback.iter_mut().zip(other.fallback) {
            *sum += count;
        }
    }

    /// The counts of a span as rates, in units of 1/1024 a second.
    ///
    /// Sums of such numbers are exact in binary floating point, so `checks = allowed + over + denied` holds for readers of the
    /// JSON too. A rate times the span, rounded, is the count.
    pub(super) fn per_second(&self, span: Duration) -> CheckCounts {
        let span = span.as_micros().max(1);
        let rate = |count: u64| {
            let units = (u128::from(count) * 1_024_000_000 + span / 2) / span;
            u64::try_from(units).unwrap_or(u64::MAX)
        };
        CheckCounts {
            allowed: rate(self.allowed),
            over: rate(self.over),
            denied: rate(self.denied),
            would_deny: rate(self.would_deny),
            deny_cached: rate(self.deny_cached),
            prefetched: rate(self.prefetched),
            fallback: self.fallback.map(rate),
        }
    }
}

/// A rate in units of 1/1024 a second, as a number of a second.
#[expect(
    clippy::float_arithmetic,
    clippy::cast_precision_loss,
    reason = "a division by a power of two is exact below 2^53"
)]
pub(super) fn in_seconds(units: u64) -> f64 {
    units as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(counts: &[(Part, u64)]) -> PartCounts {
        let mut parts = PartCounts::default();
        for (part, count) in counts {
            parts[*part] = *count;
        }
        parts
    }

    #[test]
    fn outcomes_add_up_to_the_checks_and_shadow_denials_pass() {
        let increase = parts(&[
            (Part::Fitting, 10),
            (Part::Denied, 4),
            (Part::WouldDeny, 3),
            (Part::Over, 2),
            (Part::DenyCached, 5),
            (Part::Prefetched, 6),
            (Part::Fallback(0), 1),
            (Part::Fallback(3), 2),
        ]);

        let counts = CheckCounts::settle(&increase, &mut PartCounts::default());

        assert_eq!(counts.checks(), 17);
        assert_eq!((counts.allowed, counts.over, counts.denied), (11, 2, 4));
        assert_eq!((counts.would_deny, counts.unchecked()), (3, 3));
        assert_eq!(counts.by_store(), 17 - 5 - 6 - 3);
    }

    #[test]
    fn a_part_that_was_read_before_its_check_counts_in_the_next_second() {
        let mut carry = PartCounts::default();

        let early = parts(&[
            (Part::Over, 1),
            (Part::DenyCached, 1),
            (Part::Fallback(1), 1),
        ]);
        let first = CheckCounts::settle(&early, &mut carry);
        let late = parts(&[(Part::Fitting, 2), (Part::Denied, 1)]);
        let second = CheckCounts::settle(&late, &mut carry);

        assert_eq!(first, CheckCounts::default());
        assert_eq!((second.allowed, second.over, second.denied), (1, 1, 1));
        assert_eq!((second.deny_cached, second.fallback), (1, [0, 1, 0, 0]));
        assert_eq!(carry, PartCounts::default());
    }

    #[test]
    fn a_counter_that_went_back_has_no_increase() {
        let before = parts(&[(Part::Fitting, 10), (Part::Denied, 1)]);
        let now = parts(&[(Part::Fitting, 3), (Part::Denied, 2)]);

        assert_eq!(now.since(&before), parts(&[(Part::Denied, 1)]));
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "the numbers are rounded")]
    fn rates_of_an_odd_span_add_up_and_give_the_counts_back() {
        let counts = CheckCounts {
            allowed: 1_153,
            over: 17,
            denied: 91,
            would_deny: 25,
            ..CheckCounts::default()
        };
        for micros in [999_137, 1_000_000, 1_003_331, 2_700_001] {
            let span = Duration::from_micros(micros);
            let rates = counts.per_second(span);
            let [checks, allowed, over, denied] =
                [rates.checks(), rates.allowed, rates.over, rates.denied].map(in_seconds);

            assert_eq!(checks.to_bits(), (allowed + over + denied).to_bits());
            assert_eq!((allowed * span.as_secs_f64()).round(), 1_153.0);
            assert_eq!((over * span.as_secs_f64()).round(), 17.0);
            assert_eq!((denied * span.as_secs_f64()).round(), 91.0);
        }
        assert_eq!(
            in_seconds(counts.per_second(Duration::from_secs(1)).allowed),
            1_153.0
        );
    }
}
