//! Concurrency: so many at once, each on a lease.

use std::time::Duration;

use super::{
    period::{Grain, InvalidLimit, Period},
    state::{State, own_state},
    step::{Ask, Step, Words},
};
use crate::{
    decision::Mark,
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

    const fn after(rolled: Rolled, charged: u64) -> u64 {
        if charged > 0 && !rolled.is_held {
            rolled.live + 1
        } else {
            rolled.live
        }
    }

    fn last_end(&self, rolled: Rolled, charged: u64, now: Timestamp) -> Duration {
        let leased = if charged > 0 {
            rolled.at + self.period.ticks
        } else {
            0
        };
        self.period.until(rolled.last_end.max(leased), now)
    }
}

/// What a concurrency limit remembers: who holds a slot, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    /// The longest lease among them.
    lease: u64,
    /// In the order in which they end.
    held: Vec<Held>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    id: u64,
    end: u64,
}

impl Slots {
    const NOBODY: Slots = Slots {
        lease: 0,
        held: Vec::new(),
    };

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// When the last of them ends.
    pub(crate) fn end(&self) -> Timestamp {
        Timestamp::from_micros(self.held.last().map_or(0, |held| held.end))
    }

    /// Gives a slot back, and tells whether it was held.
    pub(crate) fn release(&mut self, id: u64) -> bool {
        let place = self.held.iter().position(|held| held.id == id);
        place.map(|place| self.held.remove(place)).is_some()
    }

    /// Holds a slot for a whole lease from now.
    pub(crate) fn renew(&mut self, id: u64, lease: Duration, now: Timestamp) -> Renewed {
        let (now, lease) = (now.as_micros(), micros(lease));
        let held = self.held.iter().find(|held| held.id == id);
        let Some(held) = held.filter(|held| held.end > now) else {
            return Renewed::Lost;
        };
        let end = now + lease;
        if end <= held.end {
            return Renewed::HeldLonger;
        }
        self.lease = self.lease.max(lease);
        self.release(id);
        self.insert(Held { id, end });
        Renewed::Until(Timestamp::from_micros(end))
    }

    fn insert(&mut self, slot: Held) {
        let place = self.held.partition_point(|held| held.end <= slot.end);
        self.held.insert(place, slot);
    }

    /// Whether the clock stepped back further than a lease.
    fn lies_ahead(&self, now: u64) -> bool {
        self.held
            .last()
            .is_some_and(|last| last.end > now + 2 * self.lease)
    }
}

/// What became of a slot that was to be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Until(Timestamp),
    /// It was held for longer already.
    HeldLonger,
    /// It is not held any more.
    Lost,
}

/// The slots that are held at the present moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rolled {
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
    type State = Slots;
    type Rolled = Rolled;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn roll(&self, stored: Option<&Slots>, now: Timestamp, ask: Ask) -> Rolled {
        let at = now.as_micros();
        let nobody = Slots::NOBODY;
        let stored = stored.unwrap_or(&nobody);
        let repaired = stored.lies_ahead(at);
        let end = |held: &Held| {
            if repaired {
                held.end.min(at + stored.lease)
            } else {
                held.end
            }
        };
        let first = stored.held.partition_point(|held| end(held) <= at);
        let live = &stored.held[first..];
        let count = live.len() as u64;
        let over = (count + 1 + ask.reserve).saturating_sub(self.limit);
        let pivot = usize::try_from(over.saturating_sub(1)).unwrap_or(usize::MAX);
        Rolled {
            at,
            live: count,
            is_held: live.iter().any(|held| held.id == ask.slot),
            pivot: live.get(pivot).map_or(at, end),
            last_end: live.last().map_or(at, end),
            slot: ask.slot,
            repaired,
        }
    }

    fn read(&self, [at, live_and_held, pivot, last_end]: Words) -> Option<Rolled> {
        let live = live_and_held / 2;
        (live <= MOST_SLOTS).then_some(Rolled {
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
    fn charged(&self, rolled: Rolled, _units: u64) -> Rolled {
        rolled
    }

    fn is_possible(&self, ask: Ask) -> bool {
        ask.reserve < self.limit
    }

    fn fits(&self, rolled: Rolled, ask: Ask) -> bool {
        rolled.is_held || rolled.live + 1 + ask.reserve <= self.limit
    }

    fn retry_after(&self, rolled: Rolled, _ask: Ask, now: Timestamp) -> Duration {
        self.period.until(rolled.pivot, now)
    }

    fn remaining(&self, rolled: Rolled, charged: u64) -> u64 {
        self.limit
            .saturating_sub(Concurrency::after(rolled, charged))
    }

    fn reset_after(&self, rolled: Rolled, charged: u64, now: Timestamp) -> Duration {
        self.last_end(rolled, charged, now)
    }

    fn was_repaired(rolled: Rolled) -> bool {
        rolled.repaired
    }

    fn store(&self, slot: &mut Option<State>, rolled: Rolled, charged: u64) {
        let slots = self.own_mut(slot, || State::Concurrency(Box::new(Slots::NOBODY)));
        if rolled.repaired {
            let latest = rolled.at + slots.lease;
            let held = slots.held.iter_mut();
            held.for_each(|held| held.end = held.end.min(latest));
        }
        slots.held.retain(|held| held.end > rolled.at);
        if charged == 0 {
            return;
        }
        let lease = self.period.ticks;
        slots.lease = if slots.held.is_empty() {
            lease
        } else {
            lease.max(slots.lease)
        };
        let own = slots.held.iter().find(|held| held.id == rolled.slot);
        let end = own.map_or(0, |held| held.end).max(rolled.at + lease);
        slots.release(rolled.slot);
        slots.insert(Held {
            id: rolled.slot,
            end,
        });
    }

    fn mark(&self, _rolled: Rolled, _charged: u64, _now: Timestamp) -> Mark {
        Mark::new(1)
    }

    /// Slots have numbers, and are given back by them.
    fn has_units(&self) -> bool {
        false
    }

    own_state!(Concurrency(Slots));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Fit, Spend};

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn ask(slot: u64) -> Ask {
        Ask {
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
                Fit::Now => Spend::Charge,
                _ => Spend::Deny,
            };
            let stepped = two.step(&mut state, at(secs), ask(id), spend);
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
}
