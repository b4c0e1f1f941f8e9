//! When the next call of a hot key leaves.

use crate::limiter::prefetch::{
    age::Moment,
    hot_key::{HotKey, IDLE, Phase, SAMPLE},
    sizing::MIN_UNITS,
    slice::Slice,
};
use crate::store::PrefetchRequest;

/// The shortest pause of a scarce key: 1 ms, a tick of tokio's timers.
const MIN_PAUSE: u64 = 1_000;

/// The next step of the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::limiter::prefetch) enum KeeperStep {
    /// Ask the store for units.
    Call(PrefetchRequest),
    /// Look again after this number of microseconds, or when woken.
    Wait(u64),
    /// Give the key up.
    End,
}

impl HotKey {
    /// The next step, at `now`.
    ///
    /// A call leaves while there are two slices only if the older one lapses before the answer: over a far link the next
    /// slice must be on its way before that.
    pub(in crate::limiter::prefetch) fn next_step(&mut self, now: Moment) -> KeeperStep {
        self.is_woken = false;
        self.sample(now);
        let (idle, hold) = (now.since(self.last_hit), self.sizing.hold());
        let is_given_up = self.sizing.is_cold() && self.slices.is_empty();
        if self.is_ended || is_given_up || idle >= hold.max(IDLE) {
            return KeeperStep::End;
        }
        if let Some((since, span)) = self.pause {
            let left = span.saturating_sub(now.since(since));
            if left > 0 {
                return KeeperStep::Wait(left.min(hold.max(IDLE) - idle));
            }
        }
        let at = self.last.as_ref().map(|last| last.store_time(now));
        let usable = at.map_or(0, |at| self.usable(at));
        if let Some(at) = at {
            self.drop_empty(at);
        }
        let request = self.sizing.request(
            now.since(self.hot_since),
            usable,
            self.phase == Phase::Scarce,
            self.window_left(now),
        );
        let lead = self.sizing.lead();
        let life = |slice: Option<&Slice>| match (slice, at) {
            (Some(slice), Some(at)) => slice.lapses_at().as_micros().saturating_sub(at.as_micros()),
            _ => 0,
        };
        let (oldest, life) = (life(self.slices.first()), life(self.slices.last()));
        let has_room = self.slices.len() < 2 || oldest <= self.sizing.rtt();
        let is_due = match self.phase {
            Phase::Scarce => request.want() >= MIN_UNITS,
            _ => usable <= self.low_water || life <= lead,
        };
        let is_active = idle <= hold.max(SAMPLE);
        if is_due && is_active && has_room {
            return KeeperStep::Call(request);
        }
        let until_due = match self.phase {
            Phase::Scarce => hold / 2,
            _ => life.saturating_sub(lead),
        };
        let until_due = match (is_due, has_room) {
            (true, true) => IDLE,
            (true, false) => oldest - self.sizing.rtt(),
            _ => until_due,
        };
        KeeperStep::Wait(until_due.clamp(SAMPLE / 5, IDLE))
    }

    /// Adds the hits since the last sample to the demand.
    fn sample(&mut self, now: Moment) {
        let span = now.since(self.sampled_at);
        if span >= SAMPLE {
            self.sizing.observe_demand(self.wanted, span);
            (self.wanted, self.sampled_at) = (0, now);
        }
    }

    /// The time until the window of the last answer ends, in microseconds; `None` without one, or after its end.
    fn window_left(&self, now: Moment) -> Option<u64> {
        let last = self.last.as_ref()?;
        let end = last.window_end?.as_micros();
        let left = end.checked_sub(last.store_time(now).as_micros());
        left.filter(|left| *left > 0)
    }

    /// Half of the time until the window of a counter ends, in microseconds; `u64::MAX` without one.
    ///
    /// A counter at saturation frees its last units just before its window ends. The calls of a scarce key come closer to
    /// each other towards the end, so that those units are charged in time to be spent.
    pub(super) fn half_of_counter(&self, now: Moment) -> u64 {
        let left = self.counter_left(now).filter(|left| *left >= 2 * MIN_PAUSE);
        left.map_or(u64::MAX, |left| left / 2)
    }

    /// Whether the window of a counter ends so soon that no further slice is worth a call. Hits that the units on hand do
    /// not pay are then sent to the store, which frees units until the end.
    pub(super) fn is_counter_ending(&self, now: Moment) -> bool {
        let left = self.counter_left(now);
        left.is_some_and(|left| left <= self.sizing.shortest_slice().max(2 * MIN_PAUSE))
    }

    /// The time until the window of a counter ends, in microseconds.
    fn counter_left(&self, now: Moment) -> Option<u64> {
        let has_counter = self.last.as_ref().is_some_and(|last| last.has_counter);
        self.window_left(now).filter(|_| has_counter)
    }

    /// A random span between half a hold and one, so that instances do not call at the same moment.
    pub(super) fn half_to_one_hold(&self, now: Moment) -> u64 {
        let half = (self.sizing.hold() / 2).max(1);
        half + now.jitter() % half
    }
}
