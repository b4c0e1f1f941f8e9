//! Concurrency: slots for requests in progress, each held on a lease.

mod state;

use std::time::Duration;

pub(crate) use self::state::ConcurrencyState;
use crate::algorithm::{
    State,
    concurrency::state::Lease,
    period::{Grain, InvalidLimit, Period},
    step::{Demand, Step, WireState},
};
use crate::time::Timestamp;

/// The largest limit. Each slot of a key is stored.
const MAX_SLOTS: u64 = 10_000;
/// The shortest lease: 1 ms.
const MIN_LEASE_MICROS: u64 = 1_000;
/// The longest lease: one day.
const MAX_LEASE_MICROS: u64 = 86_400 * 1_000_000;
/// See [`Concurrency::DEFAULT_LEASE`].
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// A number of slots for each key; a hit that passes holds one slot until it is released.
///
/// - A hit takes one slot, whatever it costs.
/// - Each slot is held on a lease. A slot whose holder crashed is free when its lease ends.
/// - A [`Reservation`](crate::Reservation) releases its slot when it is dropped. With the feature
///   `tokio` it renews the lease while it lives.
/// - A slot has an id that its hit chose. A second hit with the same id takes no second slot.
/// - The `retry_after` of a [`Store`](crate::store::Store) is the earliest end of a lease. Holders renew their
///   leases and release their slots earlier, so a [`Limiter`](crate::Limiter) reports one second at most.
///
/// ```
/// use ratelimit_core::{Concurrency, Key, Limiter, Policy, store::Hit};
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let uploads = Policy::new("upload", Concurrency::new(1, Duration::from_secs(30))?)?;
/// let (limiter, alice) = (Limiter::in_memory(), Key::new("alice")?);
/// let hit = Hit::new(&uploads, &alice);
///
/// let (_, first) = limiter.reserve(hit.with_slot_id()).await;
/// assert!(limiter.reserve(hit.with_slot_id()).await.1.is_none());
/// drop(first);
/// assert!(limiter.reserve(hit.with_slot_id()).await.1.is_some());
/// # Ok(())
/// # }
/// ```
///
/// The page is `docs/algorithms/concurrency.md`, the Lua twin `lua/concurrency.lua`.
#[doc(alias = "semaphore")]
#[doc(alias = "in flight")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    /// The lease, in microseconds.
    pub(crate) period: Period,
}

impl Concurrency {
    /// The lease of `concurrency N` without `lease D`: 30 s.
    pub const DEFAULT_LEASE: Duration = DEFAULT_LEASE;

    /// Allows `limit` slots at once; a slot that is never released is free after `lease`.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit::Zero`] when `limit` is 0
    /// - [`InvalidLimit::TooManySlots`] when `limit` is above 10,000
    /// - [`InvalidLimit::Lease`] when `lease` lies outside 1 ms to one day
    pub const fn new(limit: u64, lease: Duration) -> Result<Concurrency, InvalidLimit> {
        if limit == 0 {
            return Err(InvalidLimit::Zero);
        }
        if limit > MAX_SLOTS {
            return Err(InvalidLimit::TooManySlots { limit });
        }
        let ticks = lease.as_micros();
        if ticks < MIN_LEASE_MICROS as u128 || ticks > MAX_LEASE_MICROS as u128 {
            return Err(InvalidLimit::Lease { lease });
        }
        #[allow(clippy::cast_possible_truncation, reason = "at most MAX_LEASE_MICROS")]
        let ticks = ticks as u64;
        let grain = Grain::Microsecond;
        Ok(Concurrency {
            limit,
            period: Period { ticks, grain },
        })
    }

    /// The number of slots of one key.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// How long a slot is held unless it is renewed or released.
    pub const fn lease(&self) -> Duration {
        self.period.duration()
    }
}

/// The outcome of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The lease now ends at this time.
    Extended(Timestamp),
    /// The stored lease ends later already.
    Unchanged,
    /// The slot is not held any more.
    Lost,
}

/// The slots in use at the present moment, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConcurrencySnapshot {
    at: u64,
    /// The slots whose lease has not ended.
    live: u64,
    /// Whether the slot of this hit is among them.
    is_held: bool,
    /// Whether the hit was charged: its lease begins at `at`.
    is_charged: bool,
    /// The end that must pass before the hit fits.
    pivot: u64,
    /// The end of the last lease; `at` without slots.
    last_end: u64,
    /// The id of the slot of this hit; 0 in a snapshot from Redis, which is never written.
    slot: u64,
    repaired: bool,
}

impl Step for Concurrency {
    type Snapshot = ConcurrencySnapshot;

    fn limit(&self) -> u64 {
        self.limit
    }

    /// Finds the live slots by binary search. A repair cuts every end to one lease from now.
    fn advance(
        &self,
        stored: Option<&State>,
        now: Timestamp,
        demand: Demand,
    ) -> ConcurrencySnapshot {
        let at = now.as_micros();
        let empty = ConcurrencyState::EMPTY;
        let stored = match stored {
            Some(State::Concurrency(slots)) => slots,
            _ => &empty,
        };
        let repaired = stored.clock_went_back(at);
        let end = |held: &Lease| {
            if repaired {
                held.end.min(at + stored.lease)
            } else {
                held.end
            }
        };
        let first = stored.held.partition_point(|held| end(held) <= at);
        let live = &stored.held[first..];
        let count = live.len() as u64;
        // The pivot is the end of the `over`-th slot from the front: the slots are in the order of
        // their ends.
        let over = (count + 1 + demand.reserve).saturating_sub(self.limit);
        let pivot = usize::try_from(over.saturating_sub(1)).unwrap_or(usize::MAX);
        ConcurrencySnapshot {
            at,
            live: count,
            is_held: live.iter().any(|held| held.id == demand.slot),
            is_charged: false,
            pivot: live.get(pivot).map_or(at, end),
            last_end: live.last().map_or(at, end),
            slot: demand.slot,
            repaired,
        }
    }

    fn is_repaired(snapshot: ConcurrencySnapshot) -> bool {
        snapshot.repaired
    }

    /// A hit whose slot is held already always fits: a repeated request does not lose its slot.
    fn fits(&self, snapshot: ConcurrencySnapshot, demand: Demand) -> bool {
        snapshot.is_held || snapshot.live + 1 + demand.reserve <= self.limit
    }

    fn retry_after(
        &self,
        snapshot: ConcurrencySnapshot,
        _demand: Demand,
        now: Timestamp,
    ) -> Duration {
        self.period.until(snapshot.pivot, now)
    }

    /// A hit takes one slot, whatever its cost, and none if it holds one already. The lease begins again.
    fn charge(&self, snapshot: ConcurrencySnapshot, _units: u64) -> ConcurrencySnapshot {
        ConcurrencySnapshot {
            live: snapshot.live + u64::from(!snapshot.is_held),
            is_held: true,
            is_charged: true,
            last_end: snapshot.last_end.max(snapshot.at + self.period.ticks),
            ..snapshot
        }
    }

    /// Zero while a lowered limit has more slots than it admits.
    fn remaining(&self, snapshot: ConcurrencySnapshot) -> u64 {
        self.limit.saturating_sub(snapshot.live)
    }

    /// The time until the last lease ends.
    fn reset_after(&self, snapshot: ConcurrencySnapshot, now: Timestamp) -> Duration {
        self.period.until(snapshot.last_end, now)
    }

    /// Drops expired slots, then stores the slot of the hit; an end never moves to an earlier time.
    fn write(&self, slot: &mut Option<State>, snapshot: ConcurrencySnapshot) {
        let slots = stored_slots(slot);
        if snapshot.repaired {
            let latest = snapshot.at + slots.lease;
            let held = slots.held.iter_mut();
            held.for_each(|held| held.end = held.end.min(latest));
        }
        slots.held.retain(|held| held.end > snapshot.at);
        slots.shrink_if_oversized();
        if !snapshot.is_charged {
            return;
        }
        let lease = self.period.ticks;
        // Only live slots need the stored lease. The first slot of an empty state replaces it.
        slots.lease = if slots.held.is_empty() {
            lease
        } else {
            lease.max(slots.lease)
        };
        let own = slots.held.iter().find(|held| held.id == snapshot.slot);
        let end = own.map_or(0, |held| held.end).max(snapshot.at + lease);
        // A slot that is held already is moved to its new place in the order.
        slots.release(snapshot.slot);
        slots.insert(Lease {
            id: snapshot.slot,
            end,
        });
    }

    /// Reads `at`, `2 x live + held`, the pivot and the last end.
    fn decode(
        &self,
        [at, live_and_held, pivot, last_end]: WireState,
    ) -> Option<ConcurrencySnapshot> {
        let live = live_and_held / 2;
        (live <= MAX_SLOTS).then_some(ConcurrencySnapshot {
            at,
            live,
            is_held: live_and_held % 2 == 1,
            is_charged: false,
            pivot,
            last_end,
            slot: 0,
            repaired: false,
        })
    }
}

/// The slots in `slot`; an empty state replaces an absent one, or one of another algorithm.
fn stored_slots(slot: &mut Option<State>) -> &mut ConcurrencyState {
    if !matches!(slot, Some(State::Concurrency(_))) {
        *slot = Some(State::Concurrency(Box::new(ConcurrencyState::EMPTY)));
    }
    let Some(State::Concurrency(slots)) = slot else {
        unreachable!("slots were stored");
    };
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Effect, Fit, step::step_limit};

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn demand(slot: u64) -> Demand {
        Demand {
            cost: 1,
            reserve: 0,
            slot,
        }
    }

    #[test]
    fn a_slot_is_free_again_when_it_is_given_back_or_its_lease_ends() {
        let two = Concurrency::new(2, Duration::from_secs(30)).unwrap();
        let mut state = None;
        let mut take = |secs, id| {
            let spend = |fit| match fit {
                Fit::Now => Effect::Charge,
                _ => Effect::Deny,
            };
            let stepped = step_limit(&two, &mut state, at(secs), demand(id), spend);
            (stepped.charged > 0, stepped.decision)
        };

        assert!(take(0, 1).0);
        assert_eq!(take(10, 2).1.remaining, 0);
        let (fits, denied) = take(11, 3);

        assert!(!fits);
        assert_eq!(denied.reset_after, Duration::from_secs(29));
        assert!(take(12, 2).0, "who holds a slot may ask again");
        assert!(take(30, 3).0, "the first lease ended");
        assert!(!take(30, 4).0);
    }

    #[test]
    fn slots_that_ended_or_were_released_give_their_memory_back() {
        let many = Concurrency::new(10_000, Duration::from_secs(30)).unwrap();
        let allocated = |state: &Option<State>| match state {
            Some(State::Concurrency(slots)) => slots.held.capacity(),
            _ => 0,
        };
        let mut state = None;
        let take = |state: &mut Option<State>, secs, id| {
            step_limit(&many, state, at(secs), demand(id), |_| Effect::Charge);
        };
        for id in 0..9_000 {
            take(&mut state, 0, id);
        }
        assert!(allocated(&state) >= 9_000);
        take(&mut state, 31, 9_000);
        assert!(allocated(&state) <= 64, "{}", allocated(&state));

        for id in 0..9_000 {
            take(&mut state, 32, id);
        }
        let Some(State::Concurrency(slots)) = &mut state else {
            panic!("slots are stored");
        };
        for id in 0..=9_000 {
            assert!(slots.release(id));
        }
        assert!(allocated(&state) <= 64, "{}", allocated(&state));
    }
}
