//! Limits that can never deny, because another limit of their policy is always at least as strict.
//!
//! The limits of a policy are charged together, so they see the same hits. A limit is shadowed by
//! another when it admits every sequence of hits that the other admits, from a fresh start and on a
//! clock that does not step back. [`max_within`] and [`Envelope`] bound the hits that a limit
//! admits in any span; [`shadows`] compares the bound with what the other limit needs in order
//! never to deny.
//!
//! - `10/s; 1000/s`: the second bucket has a larger capacity and a faster refill.
//! - `10/min; fixed_window 20/min`: a bucket of 10 that gains 10 admits at most 20 in any minute.
//! - `10/s; 1000/h`: neither. The first admits 36,000 in an hour, the second 1,000 in a moment.

use ratelimit_core::{Limit, Policy};

use crate::policy_file::{code::DiagnosticCode, diagnostic::Diagnostics};

/// A limit that can never deny a hit, and the limit that makes it redundant.
#[derive(Debug)]
struct RedundantLimit {
    /// The limit that never denies.
    limit: Limit,
    /// A limit of the same key that is always at least as strict; equal to `limit` for a repeated
    /// limit.
    stricter: Limit,
}

/// Reports each limit that never denies, because another limit of the same key is stricter.
pub(crate) fn report_redundant(policy: &Policy, line: usize, diagnostics: &mut Diagnostics) {
    for RedundantLimit { limit, stricter } in redundant_limits(policy) {
        if limit == stricter {
            let message = format!("the limit {limit} is there twice");
            diagnostics.add(DiagnosticCode::RepeatedLimit, line, message);
        } else {
            let message = format!(
                "the limit {limit} never denies anything: {stricter} is always at least as strict"
            );
            diagnostics.add(DiagnosticCode::ShadowedLimit, line, message);
        }
    }
}

/// The redundant limits of a policy, without those of its tiers. The search is conservative: a limit
/// that it returns never denies, and it may miss some.
fn redundant_limits(policy: &Policy) -> Vec<RedundantLimit> {
    policy
        .limits_by_key()
        .flat_map(|(_, limits)| redundant(&limits))
        .collect()
}

/// The redundant limits of one key. A repeated limit is redundant wherever it is not the first.
fn redundant(limits: &[Limit]) -> Vec<RedundantLimit> {
    let enumerated = limits.iter().enumerate();
    let found = enumerated.filter_map(|(index, limit)| {
        let earlier = limits[..index].iter().find(|other| *other == limit);
        let stricter = *earlier.or_else(|| shadowing(limits, index))?;
        Some(RedundantLimit {
            limit: *limit,
            stricter,
        })
    });
    found.collect()
}

/// The limit that shadows the one at `index`. Of two that shadow each other only the second is
/// redundant.
fn shadowing(limits: &[Limit], index: usize) -> Option<&Limit> {
    let limit = &limits[index];
    let mut others = limits.iter().enumerate();
    let found = others.find(|(other_index, other)| {
        *other_index != index
            && *other != limit
            && shadows(other, limit)
            && (*other_index < index || !shadows(limit, other))
    });
    found.map(|(_, other)| other)
}

/// Whether `limit` admits every hit that `strict` admits. `false` may be wrong, `true` never is.
fn shadows(strict: &Limit, limit: &Limit) -> bool {
    // A limit that counts denials sees more hits than the others admit, and a shaping limit delays
    // hits that pass. A limit without units bounds no rate.
    let both_count = strict.counts_units() && limit.counts_units();
    if !both_count || records_denials(limit) || delays(limit) {
        return false;
    }
    if let Some(within) = max_within_aligned(strict, limit) {
        return within <= limit_of(limit);
    }
    // In a coarser grain a moment counts as the beginning of its tick, and the bounds below would
    // be off by one.
    if !is_exact(strict) || !is_exact(limit) {
        return false;
    }
    match limit {
        Limit::TokenBucket(_) | Limit::LeakyBucket(_) => {
            let envelope = Envelope::of(strict);
            envelope.burst <= limit_of(limit) && is_no_faster(strict, limit)
        }
        Limit::FixedWindow(_) | Limit::SlidingWindowLog(_) => {
            max_within(strict, micros(limit)) <= limit_of(limit)
        }
        // A counter weighs the previous window as if its hits were spread evenly, which can be more
        // than the part in sight, but never more than all hits of both windows.
        Limit::SlidingWindowCounter(_) => {
            is_same_window(strict, limit)
                || max_within(strict, 2 * micros(limit)) <= limit_of(limit)
        }
        _ => false,
    }
}

/// Whether the limit counts denied hits.
fn records_denials(limit: &Limit) -> bool {
    matches!(limit, Limit::SlidingWindowLog(log) if log.counts_denied())
}

/// Whether an admitted hit can get a delay.
fn delays(limit: &Limit) -> bool {
    matches!(limit, Limit::LeakyBucket(bucket) if !bucket.is_policing())
}

/// Whether the limit counts in microseconds: the capacity times the period is below 2^53.
fn is_exact(limit: &Limit) -> bool {
    limit_of(limit) * micros(limit) < 1 << 53
}

/// The period in microseconds, wide enough for products.
fn micros(limit: &Limit) -> u128 {
    limit.period().as_micros()
}

/// The capacity, wide enough for products.
fn limit_of(limit: &Limit) -> u128 {
    u128::from(limit.capacity())
}

/// Whether both are counters of one period: they keep the same two counts, so the lower limit
/// decides.
fn is_same_window(strict: &Limit, limit: &Limit) -> bool {
    matches!(strict, Limit::SlidingWindowCounter(_))
        && micros(strict) == micros(limit)
        && strict.capacity() <= limit.capacity()
}

/// A linear bound: within any closed span of time `d` at most `burst` + rate x `d` units pass.
struct Envelope {
    burst: u128,
}

impl Envelope {
    /// The bound of a limit; its rate is `per_period` in each period.
    fn of(limit: &Limit) -> Envelope {
        let burst = limit_of(limit);
        match limit {
            // A closed span of `d` lies in `d / period + 1` spans of the log.
            Limit::TokenBucket(_) | Limit::LeakyBucket(_) | Limit::SlidingWindowLog(_) => {
                Envelope { burst }
            }
            // A closed span of `d` touches up to `d / period + 2` windows of the clock.
            _ => Envelope { burst: 2 * burst },
        }
    }
}

/// Whether the rate of `strict` is at most that of `limit`, compared without a division.
fn is_no_faster(strict: &Limit, limit: &Limit) -> bool {
    let strict_gain = u128::from(strict.per_period()) * micros(limit);
    let gain = u128::from(limit.per_period()) * micros(strict);
    strict_gain <= gain
}

/// The most units that `limit` admits in any half-open span of `span` microseconds.
fn max_within(limit: &Limit, span: u128) -> u128 {
    let (most, period) = (limit_of(limit), micros(limit));
    match limit {
        Limit::TokenBucket(_) | Limit::LeakyBucket(_) => {
            most + u128::from(limit.per_period()) * span / period
        }
        Limit::SlidingWindowLog(_) => span.div_ceil(period) * most,
        _ => (span.div_ceil(period) + 1) * most,
    }
}

/// The most units that `strict` admits in one window of `limit`, where the windows of both begin
/// together.
///
/// Windows of the clock begin at multiples of their period, in every grain. `None` if the periods
/// do not divide each other or the limits have no such windows.
fn max_within_aligned(strict: &Limit, limit: &Limit) -> Option<u128> {
    let (Limit::FixedWindow(_) | Limit::SlidingWindowCounter(_), Limit::FixedWindow(_)) =
        (strict, limit)
    else {
        return None;
    };
    let (outer, inner) = (micros(limit), micros(strict));
    if inner.is_multiple_of(outer) {
        Some(limit_of(strict))
    } else if outer.is_multiple_of(inner) {
        Some(outer / inner * limit_of(strict))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::{prelude::*, sample::select};
    use ratelimit_core::{Clock, Key, Limiter, MemoryStore, Timestamp};
    use tokio::runtime::Builder;

    use super::*;

    fn limit(text: &str) -> Limit {
        text.parse().unwrap()
    }

    /// The text of each redundant limit and of the stricter one.
    fn found(text: &str) -> Vec<(String, String)> {
        let policy = Policy::parse("p", text).unwrap();
        let redundant = redundant_limits(&policy).into_iter();
        redundant
            .map(|found| (found.limit.to_string(), found.stricter.to_string()))
            .collect()
    }

    #[test]
    fn a_limit_that_another_makes_needless_is_found() {
        for text in [
            "10/s; 1000/s",
            "10/min; 10/h",
            "10/s burst 5; 20/s",
            "fixed_window 10/min; fixed_window 600/h",
            "fixed_window 10/h; fixed_window 10/min",
            "10/min; fixed_window 20/min",
            "sliding_window_log 5/min; 5/min",
            "fixed_window 5/min; 5/min burst 10",
            "sliding_window_log 5/min; sliding_window_log 15/150s",
            "sliding_window_counter 5/min; sliding_window_counter 6/min",
            "sliding_window_log 5/min; sliding_window_counter 10/min",
            "leaky_bucket 10/s; 10/s",
            "10/s; leaky_bucket 10/s police",
        ] {
            let found = found(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_ne!(found[0].0, found[0].1, "{text}");
        }
    }

    #[test]
    fn a_limit_that_can_deny_is_left_alone() {
        for text in [
            "5/min; 20/h",
            "10/s; 1000/h",
            "10/s burst 100; 20/s burst 50",
            "fixed_window 10/min; fixed_window 599/h",
            "fixed_window 10/min; fixed_window 10/90s",
            "10/min; fixed_window 19/min",
            "fixed_window 5/min; 5/min burst 9",
            "fixed_window 5/min; sliding_window_log 9/min",
            "sliding_window_log 5/min; sliding_window_counter 9/min",
            "10/s burst 5; leaky_bucket 10/s",
            "10/s; sliding_window_log 1000/s count-denied",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn a_repeat_is_told_apart_and_one_of_two_equals_stays() {
        let (bucket, leaky) = ("token_bucket 10/s", "leaky_bucket 10/s police");
        let pair = |limit: &str, stricter: &str| (limit.to_owned(), stricter.to_owned());
        assert_eq!(found("10/s; 10/s"), [pair(bucket, bucket)]);
        assert_eq!(
            found("10/s; leaky_bucket 10/s police; 10/s"),
            [pair(leaky, bucket), pair(bucket, bucket)]
        );
    }

    #[test]
    fn in_a_coarse_grain_only_windows_are_compared() {
        let (coarse, wide) = (limit("10000000000/s"), limit("20000000000/s"));
        assert!(!is_exact(&coarse));
        assert!(!shadows(&coarse, &wide));
        assert_eq!(
            found("fixed_window 10000000000/s; fixed_window 20000000000/s").len(),
            1
        );
    }

    /// Limits of small numbers, with periods that divide each other and others that do not.
    fn limits() -> impl Strategy<Value = Limit> {
        let names = vec![
            "token_bucket",
            "leaky_bucket",
            "fixed_window",
            "sliding_window_log",
            "sliding_window_counter",
        ];
        let periods = select(vec![4_u64, 6, 8, 12, 24]);
        (select(names), 1..7_u64, periods, 1..13_u64).prop_map(|(name, count, period, capacity)| {
            let options = match name {
                "token_bucket" => format!("burst {capacity}"),
                "leaky_bucket" => format!("queue {capacity} police"),
                _ => String::new(),
            };
            limit(&format!("{name} {count}/{period}ms {options}"))
        })
    }

    /// Pairs of a wait, in quarters of a millisecond, and a cost. Long waits let states expire.
    fn hits() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let waits = prop_oneof![4 => Just(0_u64), 4 => 1..9_u64, 2 => 9..100_u64];
        prop::collection::vec((waits, 1..5_u64), 1..120)
    }

    proptest! {
        #![proptest_config(ProptestConfig { max_global_rejects: 1_000_000, ..ProptestConfig::with_cases(10_000) })]

        #[test]
        fn what_passes_the_stricter_passes_the_shadowed(
            strict in limits(), shadowed in limits(), begin in 0..200_u64, hits in hits(),
        ) {
            prop_assume!(shadows(&strict, &shadowed));
            let clock = Clock::manual(Timestamp::from_micros(begin * 250));
            let limiter = Limiter::new(MemoryStore::new().capacity(2).clock(clock.clone()));
            let (strict, shadowed) = (Policy::new("strict", strict)?, Policy::new("shadowed", shadowed)?);
            let key = Key::new("alice")?;
            let runtime = Builder::new_current_thread().build()?;
            let is_allowed = |policy, cost| {
                runtime.block_on(limiter.check_cost(policy, &key, cost)).is_allowed()
            };
            for (wait, cost) in hits {
                clock.advance(Duration::from_micros(wait * 250));
                if is_allowed(&strict, cost) {
                    prop_assert!(is_allowed(&shadowed, cost));
                }
            }
        }
    }
}
