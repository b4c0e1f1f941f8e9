//! The sliding window log.

use super::{
    settle::Refund,
    state::{Standing, State},
    tick::{Effective, LimitClock},
};

/// What is stored: one stamp per unit, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlidingWindowLogState {
    stamps: Vec<u128>,
    grain: u128,
}

/// A log at a moment, with the stamps that are live.
#[derive(Debug)]
pub(super) struct SlidingWindowLog {
    clock: LimitClock,
    time: Effective,
    limit: u128,
    count_denied: bool,
    live: Vec<u128>,
}

impl SlidingWindowLog {
    pub(super) fn read(
        clock: LimitClock,
        limit: u128,
        count_denied: bool,
        stored: Option<&SlidingWindowLogState>,
    ) -> Self {
        let stamps: Vec<u128> = stored.map_or_else(Vec::new, |state| {
            state
                .stamps
                .iter()
                .map(|&stamp| clock.convert(stamp, state.grain))
                .collect()
        });
        let Some(&newest) = stamps.last() else {
            return Self {
                clock,
                time: clock.fresh(),
                limit,
                count_denied,
                live: stamps,
            };
        };

        let time = clock.effective(newest);
        let seen_from = if time.repaired { newest } else { time.t };
        let mut live = stamps;
        live.retain(|&stamp| stamp + clock.period > seen_from);
        if time.repaired {
            live.fill(clock.now);
        }
        Self {
            clock,
            time,
            limit,
            count_denied,
            live,
        }
    }

    fn count(&self) -> u128 {
        self.live.len() as u128
    }

    fn append(&mut self, cost: u128) {
        for _ in 0..cost {
            self.live.push(self.time.t);
        }
    }

    /// The time until a stamp leaves, the first live one being number 1.
    fn leaves_after_us(&self, number: u128) -> u128 {
        let index = usize::try_from(number - 1).expect("a log fits in memory");
        self.clock.until(self.live[index] + self.clock.period)
    }
}

impl SlidingWindowLogState {
    /// The state after taking out as many stamps of a charge, if there are any.
    pub(super) fn refunded(&self, clock: &LimitClock, refund: &Refund) -> Option<Self> {
        let mut taken = 0;
        let mut stamps = Vec::new();
        for &stamp in &self.stamps {
            let stamp = clock.convert(stamp, self.grain);
            if stamp == refund.tick && taken < refund.units {
                taken += 1;
            } else {
                stamps.push(stamp);
            }
        }
        let grain = clock.grain;
        (taken > 0).then_some(Self { stamps, grain })
    }
}

impl Standing for SlidingWindowLog {
    fn repaired(&self) -> bool {
        self.time.repaired
    }

    fn is_ahead(&self) -> bool {
        self.time.is_ahead(&self.clock)
    }

    fn fits(&self, cost: u128) -> bool {
        self.count() + cost <= self.limit
    }

    fn retry_after_us(&self, cost: u128) -> u128 {
        self.leaves_after_us(self.count() + cost - self.limit)
    }

    fn remaining(&self) -> u128 {
        self.limit.saturating_sub(self.count())
    }

    fn reset_after_us(&self) -> u128 {
        if self.live.is_empty() {
            0
        } else {
            self.leaves_after_us(1)
        }
    }

    fn need_us(&self) -> u128 {
        if self.live.is_empty() {
            0
        } else {
            self.leaves_after_us(self.count())
        }
    }

    fn charge(&mut self, cost: u128) {
        self.append(cost);
    }

    fn count_denied(&mut self, cost: u128) -> bool {
        if self.count_denied {
            self.append(cost.min(self.limit));
            let excess = self.count().saturating_sub(self.limit);
            self.live
                .drain(..usize::try_from(excess).expect("a log fits in memory"));
        }
        self.count_denied
    }

    fn store(&self) -> State {
        let (stamps, grain) = (self.live.clone(), self.clock.grain);
        State::SlidingWindowLog(SlidingWindowLogState { stamps, grain })
    }
}
