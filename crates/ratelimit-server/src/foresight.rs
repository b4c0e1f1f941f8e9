//! When a hit would pass, told from a look.
//!
//! Whether a cost passes now follows exactly from what remains. When it passes does not: a look says
//! what remains and when that resets, and neither the rest of a token, nor the stamps of a log, nor the
//! two counts of a window. What follows is by when it passes at the latest, if nobody else comes first.
//!
//! | algorithm | that is |
//! |---|---|
//! | fixed window | exact |
//! | token bucket, leaky bucket | at most one tick of the limit's grain late |
//! | sliding window log | exact for one more than remains, else at most a period |
//! | sliding window counter | at most a period late |
//!
//! In the first period after a log's limit was lowered there may be more stamps than the limit, which a
//! look does not tell either; then the wait may be longer than what is foreseen.

use std::time::Duration;

use ratelimit_core::{Algorithm, Decision, Limit, LimitDecision, Policy};

/// By when `cost` passes every limit of `policy`; nothing when it never does.
pub(crate) fn passes_after(policy: &Policy, seen: &Decision, cost: u64) -> Option<Duration> {
    let limits = policy.limits().iter().zip(seen.limits());
    let waits: Option<Vec<Duration>> = limits
        .map(|(limit, seen)| limit_passes_after(limit, &seen, cost))
        .collect();
    waits?.into_iter().max()
}

/// By when `cost` passes one limit; nothing when it never does.
pub(crate) fn limit_passes_after(
    limit: &Limit,
    seen: &LimitDecision,
    cost: u64,
) -> Option<Duration> {
    if cost > seen.limit {
        return None;
    }
    if cost <= seen.remaining {
        return Some(Duration::ZERO);
    }
    let period = limit.period();
    Some(match limit.algorithm() {
        // Whole again at the reset, so `cost` is there as much earlier as the rest takes to fill.
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let spare = u128::from(seen.limit - cost) * period.as_micros();
            let earlier = spare / u128::from(limit.per_period());
            let earlier = Duration::from_micros(u64::try_from(earlier).unwrap_or(u64::MAX));
            seen.reset_after.saturating_sub(earlier)
        }
        Algorithm::FixedWindow => seen.reset_after,
        Algorithm::SlidingWindowLog if cost == seen.remaining + 1 => seen.reset_after,
        // The latest case is that all was spent in the current window.
        Algorithm::SlidingWindowCounter => {
            let spent = seen.limit - seen.remaining;
            let fades = u128::from(seen.limit - cost) * period.as_micros() / u128::from(spent);
            let fades = Duration::from_micros(u64::try_from(fades).unwrap_or(u64::MAX));
            seen.reset_after + period.saturating_sub(fades)
        }
        _ => period,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratelimit_core::{Clock, Hit, Key, MemoryStore, Outcome, Store as _, Timestamp};

    use super::*;

    const TEXTS: [&str; 7] = [
        "token_bucket 3/s burst 7",
        "leaky_bucket 3/s queue 5",
        "leaky_bucket 7/s queue 5 police",
        "fixed_window 4/10s",
        "sliding_window_log 4/10s",
        "sliding_window_counter 4/10s",
        "token_bucket 1/s burst 2; fixed_window 4/10s",
    ];

    /// A key with some history, in a store whose clock can be moved.
    struct Past {
        policy: Policy,
        key: Key,
        clock: Clock,
        store: MemoryStore,
    }

    impl Past {
        fn of(text: &str, hits: &[(u64, u64)]) -> Past {
            let clock = Clock::manual(Timestamp::from_micros(1_234_567));
            let past = Past {
                policy: Policy::parse("p", text).unwrap(),
                key: Key::explicit("k").unwrap(),
                store: MemoryStore::new().clock(clock.clone()),
                clock,
            };
            for (pause_micros, cost) in hits {
                past.clock.advance(Duration::from_micros(*pause_micros));
                past.hit(*cost);
            }
            past
        }

        fn hit(&self, cost: u64) -> Decision {
            let answer = self.store.hit(Hit::new(&self.policy, &self.key).cost(cost));
            futures_util::FutureExt::now_or_never(answer)
                .unwrap()
                .unwrap()
        }

        fn foreseen(&self, cost: u64) -> Option<Duration> {
            passes_after(&self.policy, &self.hit(0), cost)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_passes_now_is_known_exactly(
            text in 0..TEXTS.len(),
            hits in prop::collection::vec((0_u64..3_000_000, 0_u64..4), 0..30),
            cost in 1_u64..9,
        ) {
            let past = Past::of(TEXTS[text], &hits);

            let foreseen = past.foreseen(cost);
            let decided = past.hit(cost).outcome;

            match decided {
                Outcome::Allowed { .. } => prop_assert_eq!(foreseen, Some(Duration::ZERO)),
                Outcome::Denied { retry_after } => {
                    prop_assert!(foreseen >= Some(retry_after), "{:?} {:?}", foreseen, retry_after);
                }
                Outcome::Impossible => prop_assert_eq!(foreseen, None),
            }
        }

        #[test]
        fn a_wait_is_foreseen_as_closely_as_is_said(
            text in 0..TEXTS.len(),
            hits in prop::collection::vec((0_u64..3_000_000, 0_u64..4), 0..30),
            cost in 1_u64..9,
        ) {
            let past = Past::of(TEXTS[text], &hits);
            let (foreseen, left) = (past.foreseen(cost), past.hit(0).remaining);

            let Outcome::Denied { retry_after } = past.hit(cost).outcome else { return Ok(()) };

            let late = foreseen.unwrap().checked_sub(retry_after).unwrap();
            let limits = past.policy.limits();
            let most = limits.iter().map(|limit| match limit.algorithm() {
                Algorithm::FixedWindow => Duration::ZERO,
                Algorithm::TokenBucket | Algorithm::LeakyBucket => Duration::from_micros(1),
                Algorithm::SlidingWindowLog if cost == left + 1 => Duration::ZERO,
                _ => limit.period(),
            });
            prop_assert!(late <= most.max().unwrap(), "{:?} {:?}", late, retry_after);
        }
    }
}
