//! Concurrency: so many at once, each on a lease.

use std::time::Duration;

use crate::algorithm::{
    period::{Grain, InvalidLimit, Period},
    state::{State, is_oversized, own_state},
    step::{Demand, Step, WireState},
};
use crate::{
    decision::RefundMark,
    time::{Timestamp, micros},
};

/// The most slots of one key.
const MOST_SLOTS: u64 = 10_000;
const SHORTEST_LEASE: u64 = 1_000;
const LONGEST_LEASE: u64 = 86_400 * 1_000_000;
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// At most so many at once for each key, wherever they run.
///
/// A hit that passes takes one slot, whatever it costs, and holds it until it is given back. A slot
/// that is not given back, because its holder crashed, is free again when its lease ends; whoever
/// holds one for longer renews it.
///
/// ```
/// use ratelimit_core::Concurrency;
/// use std::time::Duration;
///
/// let uploads = Concurrency::new(5, Duration::from_secs(30))?;
/// assert_eq!((uploads.limit(), uploads.lease()), (5, Duration::from_secs(30)));
/// # Ok::<(), ratelimit_core::InvalidLimit>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    /// The lease, in microseconds.
    pub(crate) period: Period,
}

impl Concurrency {
    /// The lease where none is named.
    pub const DEFAULT_LEASE: Duration = DEFAULT_LEASE;

    /// At most `limit` at once; a slot that nobody gives back is free again after `lease`.
    ///
    /// # Errors
    ///
    /// When `limit` is not 1 to 10,000, or `lease` not 1 ms to one day.
    pub const fn new(limit: u64, lease: Duration) -> Result<Concurrency, InvalidLimit> {
        if limit == 0 {
            return Err(InvalidLimit::Zero);
        }
        if limit > MOST_SLOTS {
            return Err(InvalidLimit::TooManySlots { limit });
        }
        let ticks = lease.as_micros();
        if ticks < SHORTEST_LEASE as u128 || ticks > LONGEST_LEASE as u128 {
            return Err(InvalidLimit::Lease { lease });
        }
        #[allow(clippy::cast_possible_truncation, reason = "at most LONGEST_LEASE")]
        let ticks = ticks as u64;
        let grain = Grain::Microsecond;
        Ok(Concurrency {
            limit,
            period: Period { ticks, grain },
        })
    }

    /// How many hold a slot at once.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// How long a slot is held that nobody gives back.
    pub const fn lease(&self) -> Duration {
        self.period.duration()
    }

    const fn held_after(snapshot: ConcurrencySnapshot, charged: u64) -> u64 {
        if charged > 0 && !snapshot.is_held {
            snapshot.live + 1
        } else {
            snapshot.live
        }
    }

    fn last_end(&self, snapshot: ConcurrencySnapshot, charged: u64, now: Timestamp) -> Duration {
        let leased = if charged > 0 {
            snapshot.at + self.period.ticks
        } else {
            0
        };
        self.period.until(snapshot.last_end.max(leased), now)
    }
}

/// What a concurrency limit remembers: who holds a slot, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConcurrencyState {
    /// The longest lease among them.
    lease: u64,
    /// In the order in which they end.
    held: Vec<Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    id: u64,
    end: u64,
}

impl ConcurrencyState {
    const EMPTY: ConcurrencyState = ConcurrencyState {
        lease: 0,
        held: Vec::new(),
    };

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// How many slots there is memory for.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.held.capacity()
    }

    /// When the last of them ends.
    pub(crate) fn last_expiry(&self) -> Timestamp {
        Timestamp::from_micros(self.held.last().map_or(0, |held| held.end))
    }

    /// Gives a slot back, and tells whether it was held.
    pub(crate) fn release(&mut self, id: u64) -> bool {
        let Some(index) = self.held.iter().position(|held| held.id == id) else {
            return false;
        };
        self.held.remove(index);
        self.shrink_if_oversized();
        true
    }

    /// Gives memory back when most of it is unused.
    #[inline]
    fn shrink_if_oversized(&mut self) {
        if is_oversized(self.held.capacity(), self.held.len()) {
            self.shrink();
        }
    }

    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        self.held.shrink_to(2 * self.held.len());
    }

    /// Holds a slot for a whole lease from now.
    pub(crate) fn renew(&mut self, id: u64, lease: Duration, now: Timestamp) -> Renewal {
        let (now, lease) = (now.as_micros(), micros(lease));
        let held = self.held.iter().find(|held| held.id == id);
        let Some(held) = held.filter(|held| held.end > now) else {
            return Renewal::Lost;
        };
        let end = now + lease;
        if end <= held.end {
            return Renewal::Unchanged;
        }
        self.lease = self.lease.max(lease);
        self.release(id);
        self.insert(Lease { id, end });
        Renewal::Extended(Timestamp::from_micros(end))
    }

    fn insert(&mut self, slot: Lease) {
        let index = self.held.partition_point(|held| held.end <= slot.end);
        self.held.insert(index, slot);
    }

    /// Whether the clock stepped back further than a lease.
    fn clock_went_back(&self, now: u64) -> bool {
        self.held
            .last()
            .is_some_and(|last| last.end > now + 2 * self.lease)
    }
}

/// What became of a slot that was to be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    Extended(Timestamp),
    /// It was held for longer already.
    Unchanged,
    /// It is not held any more.
    Lost,
}

/// The slots that are held at the present moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConcurrencySnapshot {
    at: u64,
    live: u64,
    /// Whether the hit's own slot is among them.
    is_held: bool,
    /// The end that has to come before the hit fits, where it does not.
    pivot: u64,
    last_end: u64,
    slot: u64,
    repaired: bool,
}

impl Step for Concurrency {
    type State = ConcurrencyState;
    type Snapshot = ConcurrencySnapshot;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn advance(
        &self,
        stored: Option<&ConcurrencyState>,
        now: Timestamp,
        demand: Demand,
    ) -> ConcurrencySnapshot {
        let at = now.as_micros();
        let nobody = ConcurrencyState::EMPTY;
        let stored = stored.unwrap_or(&nobody);
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
        let over = (count + 1 + demand.reserve).saturating_sub(self.limit);
        let pivot = usize::try_from(over.saturating_sub(1)).unwrap_or(usize::MAX);
        ConcurrencySnapshot {
            at,
            live: count,
            is_held: live.iter().any(|held| held.id == demand.slot),
            pivot: live.get(pivot).map_or(at, end),
            last_end: live.last().map_or(at, end),
            slot: demand.slot,
            repaired,
        }
    }

    fn decode_wire(
        &self,
        [at, live_and_held, pivot, last_end]: WireState,
    ) -> Option<ConcurrencySnapshot> {
        let live = live_and_held / 2;
        (live <= MOST_SLOTS).then_some(ConcurrencySnapshot {
            at,
            live,
            is_held: live_and_held % 2 == 1,
            pivot,
            last_end,
            slot: 0,
            repaired: false,
        })
    }

    /// Each hit is decided by itself.
    fn with_charge(&self, snapshot: ConcurrencySnapshot, _units: u64) -> ConcurrencySnapshot {
        snapshot
    }

    fn can_ever_fit(&self, demand: Demand) -> bool {
        demand.reserve < self.limit
    }

    fn fits(&self, snapshot: ConcurrencySnapshot, demand: Demand) -> bool {
        snapshot.is_held || snapshot.live + 1 + demand.reserve <= self.limit
    }

    fn retry_after(&self, snapshot: ConcurrencySnapshot, _ask: Demand, now: Timestamp) -> Duration {
        self.period.until(snapshot.pivot, now)
    }

    fn remaining(&self, snapshot: ConcurrencySnapshot, charged: u64) -> u64 {
        self.limit
            .saturating_sub(Concurrency::held_after(snapshot, charged))
    }

    fn reset_after(&self, snapshot: ConcurrencySnapshot, charged: u64, now: Timestamp) -> Duration {
        self.last_end(snapshot, charged, now)
    }

    fn clock_was_repaired(snapshot: ConcurrencySnapshot) -> bool {
        snapshot.repaired
    }

    fn write(&self, slot: &mut Option<State>, snapshot: ConcurrencySnapshot, charged: u64) {
        let slots = self.state_or_insert(slot, || {
            State::Concurrency(Box::new(ConcurrencyState::EMPTY))
        });
        if snapshot.repaired {
            let latest = snapshot.at + slots.lease;
            let held = slots.held.iter_mut();
            held.for_each(|held| held.end = held.end.min(latest));
        }
        slots.held.retain(|held| held.end > snapshot.at);
        slots.shrink_if_oversized();
        if charged == 0 {
            return;
        }
        let lease = self.period.ticks;
        slots.lease = if slots.held.is_empty() {
            lease
        } else {
            lease.max(slots.lease)
        };
        let own = slots.held.iter().find(|held| held.id == snapshot.slot);
        let end = own.map_or(0, |held| held.end).max(snapshot.at + lease);
        slots.release(snapshot.slot);
        slots.insert(Lease {
            id: snapshot.slot,
            end,
        });
    }

    fn refund_mark(
        &self,
        _rolled: ConcurrencySnapshot,
        _charged: u64,
        _now: Timestamp,
    ) -> RefundMark {
        RefundMark::new(1)
    }

    /// Slots have numbers, and are given back by them.
    fn counts_units(&self) -> bool {
        false
    }

    own_state!(Concurrency(ConcurrencyState));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Effect, Fit};

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
            let stepped = two.step(&mut state, at(secs), demand(id), spend);
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
            many.step(state, at(secs), demand(id), |_| Effect::Charge);
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
