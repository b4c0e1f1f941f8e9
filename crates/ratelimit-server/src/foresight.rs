//! When a hit would pass, told from a look.
//!
//! A look says what remains and when that resets, and not how long a certain cost must wait. From
//! the limit's own numbers follows by when it passes at the latest, if nobody else comes first: to
//! the tick of its clock for buckets and fixed windows, with room to spare for sliding windows.

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
    use ratelimit_core::{Clock, Hit, Key, MemoryStore, Store as _, Timestamp};

    use super::*;

    #[tokio::test]
    async fn after_the_foreseen_wait_the_hit_passes() {
        let texts = [
            "token_bucket 3/s burst 7",
            "leaky_bucket 3/s queue 5",
            "fixed_window 4/10s",
            "sliding_window_log 4/10s",
            "sliding_window_counter 4/10s",
            "token_bucket 1/s burst 2; fixed_window 4/10s",
        ];
        for text in texts {
            for cost in 1..=2 {
                let clock = Clock::manual(Timestamp::from_micros(1_234_567));
                let store = MemoryStore::new().clock(clock.clone());
                let policy = Policy::parse("p", text).unwrap();
                let key = Key::explicit("k").unwrap();
                let hit = |cost| store.hit(Hit::new(&policy, &key).cost(cost));
                while hit(1).await.unwrap().is_allowed() {
                    clock.advance(Duration::from_millis(7));
                }

                let seen = hit(0).await.unwrap();
                let wait = passes_after(&policy, &seen, cost).expect("it fits");
                clock.advance(wait);

                assert!(wait > Duration::ZERO, "{text}");
                assert!(
                    hit(cost).await.unwrap().is_allowed(),
                    "{text} {cost} {wait:?}"
                );
            }
        }
    }
}
