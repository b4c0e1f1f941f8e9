//! The concurrency limit.

use super::{
    state::{Standing, State},
    tick::LimitClock,
};

/// What is stored: who holds a slot and until when, by end, and the longest lease among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConcurrencyState {
    lease: u128,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    id: u64,
    end: u128,
}

/// A concurrency limit at a moment, with the entries that are live; `slot` is who asks.
#[derive(Debug)]
pub(super) struct Concurrency {
    clock: LimitClock,
    ceiling: u128,
    slot: u64,
    lease: u128,
    repaired: bool,
    entries: Vec<Entry>,
}

impl ConcurrencyState {
    fn end_of(&self, slot: u64) -> Option<u128> {
        let entry = self.entries.iter().find(|entry| entry.id == slot);
        entry.map(|entry| entry.end)
    }

    /// The state without the slot, if it is there.
    pub(super) fn released(&self, slot: u64) -> Option<Self> {
        self.end_of(slot)?;
        let mut released = self.clone();
        released.entries.retain(|entry| entry.id != slot);
        Some(released)
    }

    /// The state in which the slot is held for another lease, if it is held and for less.
    pub(super) fn renewed(&self, slot: u64, now: u128, lease: u128) -> Option<Self> {
        let end = self.end_of(slot).filter(|&end| end > now)?;
        if now + lease <= end {
            return None;
        }
        let mut renewed = self.released(slot)?;
        renewed.lease = renewed.lease.max(lease);
        let is_before = |entry: &&Entry| entry.end <= now + lease;
        let place = renewed.entries.iter().filter(is_before).count();
        let entry = Entry {
            id: slot,
            end: now + lease,
        };
        renewed.entries.insert(place, entry);
        Some(renewed)
    }

    pub(super) fn is_held(&self, slot: u64, now: u128) -> bool {
        self.end_of(slot).is_some_and(|end| end > now)
    }

    /// How long it takes until the slot ends.
    pub(super) fn ends_after(&self, slot: u64, now: u128) -> u128 {
        self.end_of(slot).unwrap_or(now).saturating_sub(now)
    }
}

impl Concurrency {
    pub(super) fn read(
        clock: LimitClock,
        ceiling: u128,
        slot: u64,
        stored: Option<&ConcurrencyState>,
    ) -> Self {
        let mut standing = Self {
            clock,
            ceiling,
            slot,
            lease: 0,
            repaired: false,
            entries: Vec::new(),
        };
        let Some(state) = stored else {
            return standing;
        };
        standing.lease = state.lease;
        standing.entries.clone_from(&state.entries);
        standing.roll();
        standing
    }

    fn roll(&mut self) {
        let now = self.clock.now;
        self.repaired = self
            .entries
            .last()
            .is_some_and(|last| last.end > now + 2 * self.lease);
        if self.repaired {
            for entry in &mut self.entries {
                entry.end = entry.end.min(now + self.lease);
            }
        }
        self.entries.retain(|entry| entry.end > now);
    }

    fn live(&self) -> u128 {
        self.entries.len() as u128
    }

    fn end_of_slot(&self) -> Option<u128> {
        let mine = self.entries.iter().find(|entry| entry.id == self.slot);
        mine.map(|entry| entry.end)
    }

    fn remove_slot(&mut self) {
        self.entries.retain(|entry| entry.id != self.slot);
    }

    /// Puts the slot behind all that end no later.
    fn insert_slot(&mut self, end: u128) {
        let place = self.entries.iter().filter(|entry| entry.end <= end).count();
        let id = self.slot;
        self.entries.insert(place, Entry { id, end });
    }

    /// The time until the last lease ends.
    fn empty_after_us(&self) -> u128 {
        let last = self.entries.last();
        last.map_or(0, |last| self.clock.until(last.end))
    }

    fn is_held(&self) -> bool {
        self.end_of_slot().is_some()
    }
}

impl Standing for Concurrency {
    fn repaired(&self) -> bool {
        self.repaired
    }

    fn fits(&self, needs: u128) -> bool {
        self.is_held() || self.live() + needs <= self.ceiling
    }

    fn retry_after_us(&self, needs: u128) -> u128 {
        let number = self.live() + needs - self.ceiling;
        let index = usize::try_from(number - 1).expect("the slots fit in memory");
        self.clock.until(self.entries[index].end)
    }

    fn remaining(&self) -> u128 {
        self.ceiling.saturating_sub(self.live())
    }

    fn reset_after_us(&self) -> u128 {
        self.empty_after_us()
    }

    fn need_us(&self) -> u128 {
        self.empty_after_us()
    }

    fn charge(&mut self, _cost: u128) {
        let lease = self.clock.period;
        self.lease = if self.live() > 0 {
            lease.max(self.lease)
        } else {
            lease
        };
        let held_until = self.end_of_slot().unwrap_or(0);
        self.remove_slot();
        self.insert_slot(held_until.max(self.clock.now + lease));
    }

    fn store(&self) -> State {
        State::Concurrency(ConcurrencyState {
            lease: self.lease,
            entries: self.entries.clone(),
        })
    }
}
