//! An answer of the store: its slice, what it tells of the fleet, and the phase that follows.

use smallvec::SmallVec;

use crate::limiter::prefetch::{
    age::Moment,
    hot_key::{FleetSample, HotKey, LastGrant, OFF, Phase},
    sizing::{MAX_HOLD, MIN_UNITS},
    slice::{Slice, SliceBound},
};
use crate::{
    decision::GrantNumbers,
    limit::Limit,
    policy::{Policy, Throttle},
    store::PrefetchGrant,
    time::{Timestamp, micros},
};

/// The time between two samples of the fleet's rate, at least: 10 ms.
const FLEET_SPAN: u64 = 10_000;

/// The longest pause after a call that gave nothing although the budget is not scarce: 100 ms.
const NOTHING_GIVEN: u64 = 100_000;

impl HotKey {
    /// Takes over the answer to a call that was sent at `sent`. Returns the units that were dropped because the store
    /// knows less than it must.
    pub(in crate::limiter::prefetch) fn apply(
        &mut self,
        policy: &Policy,
        grant: &PrefetchGrant,
        sent: Moment,
        now: Moment,
    ) -> u64 {
        if self.is_ended {
            return grant.units();
        }
        self.sizing.observe_round_trip(now.since(sent));
        let decided_at = grant.decision().now;
        let mut dropped = 0;
        if let Some(last) = &self.last {
            let known = (policy.limits().iter().zip(&last.states)).zip(grant.states());
            let mut charged = known
                .map(|((limit, before), after)| limit.units_since(*before, last.units, *after));
            if charged.any(|units| units.is_none()) {
                dropped = self.usable_at(now);
                self.slices.clear();
                self.losses += 1;
            }
        }
        self.observe_fleet(policy, grant);
        let bounds = policy.limits().iter().zip(grant.states());
        let bounds = bounds.map(|(limit, state)| SliceBound::new(limit, *state, 0, decided_at));
        let bounds: Option<SmallVec<[SliceBound; 1]>> = bounds.collect();
        if let (true, Some(bounds)) = (grant.units() > 0, bounds) {
            self.make_room(now);
            self.slices
                .push(Slice::new(grant.units(), decided_at, bounds));
        }
        let charged = (grant.charged().clone())
            .refundable_in_windows(policy.limits().iter().map(Limit::is_window));
        self.last = Some(LastGrant {
            sent: sent.as_sent(),
            received: now,
            single: GrantNumbers::new(&charged, grant.units()),
            charged,
            units: grant.units(),
            window_end: window_end(policy, grant),
            has_counter: (policy.limits().iter())
                .any(|limit| matches!(limit, Limit::SlidingWindowCounter(_))),
            states: grant.states().into(),
        });
        self.denied = None;
        let usable = self.usable_at(now);
        self.low_water = self.sizing.low_water(usable);
        self.set_phase(policy, grant, now);
        dropped
    }

    /// Drops slices without live units, and the oldest one of two: a call leaves only if that one lapses before its
    /// answer is expected.
    fn make_room(&mut self, now: Moment) {
        if let Some(at) = self.last.as_ref().map(|last| last.store_time(now)) {
            self.drop_empty(at);
        }
        if self.slices.len() > 1 {
            let mut oldest = self.slices.remove(0);
            self.void += oldest.unspent() + oldest.take_void();
        }
    }

    /// Compares an answer with one of at least 10 ms before: the fleet has charged the difference.
    fn observe_fleet(&mut self, policy: &Policy, grant: &PrefetchGrant) {
        let decided_at = grant.decision().now;
        if let Some(from) = &self.fleet_from {
            let span = decided_at.as_micros().saturating_sub(from.at.as_micros());
            if span < FLEET_SPAN {
                return;
            }
            let limits = policy.limits().iter().zip(&from.states);
            for (index, ((limit, before), after)) in limits.zip(grant.states()).enumerate() {
                // After the end of a window, the count of the present one since its start. Otherwise the rate of a burst
                // would be remembered for as long as each sample spans an end.
                let present = limit.new_window(*before, *after);
                let present = present.map(|(units, start)| {
                    let since = decided_at.as_micros().saturating_sub(start.as_micros());
                    (units, since)
                });
                let (units, span) = present.unwrap_or_else(|| {
                    let units = limit.units_since(*before, from.units, *after);
                    (units.unwrap_or(0), span)
                });
                if units > 0 && span >= FLEET_SPAN {
                    self.sizing.observe_fleet(index, units, span);
                }
            }
        }
        self.fleet_from = Some(FleetSample {
            at: decided_at,
            units: grant.units(),
            states: grant.states().into(),
        });
    }

    /// The phase and the pause after an answer.
    ///
    /// A key begins with two round trips in a hold, and goes on until a slice would hardly outlive its own arrival: on a
    /// busy host single calls take several times as long.
    fn set_phase(&mut self, policy: &Policy, grant: &PrefetchGrant, now: Moment) {
        let is_off = match self.phase {
            Phase::Off => !self.sizing.is_prefetchable(),
            _ => self.sizing.is_too_far() || self.sizing.cap() < MIN_UNITS,
        };
        if is_off {
            self.phase = Phase::Off;
            self.pause = Some((now, OFF));
            return;
        }
        let wanted = self.sizing.demand_in_hold();
        let left = grant
            .decision()
            .limits()
            .map(|limit| limit.remaining.saturating_sub(grant.units()));
        let (mut is_low, mut is_ample) = (false, true);
        for (index, left) in left.enumerate() {
            let cap = self.sizing.cap_of(index);
            is_low |= left < cap;
            is_ample &= left >= cap.max(wanted);
        }
        let since = self.low_since.filter(|_| is_low);
        self.low_since = is_low.then(|| since.unwrap_or(now));
        let was_low = since.is_some_and(|since| now.since(since) >= 2 * self.sizing.hold());
        self.phase = match self.phase {
            Phase::Scarce if is_ample => Phase::Prefetched,
            Phase::Scarce => Phase::Scarce,
            _ if was_low && matches!(policy.throttle(), Throttle::Hard) => Phase::Scarce,
            _ => Phase::Prefetched,
        };
        self.pause = (self.phase == Phase::Scarce || grant.units() == 0).then(|| {
            let waits = policy.limits().iter().zip(grant.states());
            let waits = waits.map(|(limit, state)| {
                micros(limit.wait_after(*state, grant.units(), 1, grant.decision().now))
            });
            let wait = waits.max().unwrap_or(0).min(MAX_HOLD);
            let wait = if grant.units() == 0 { wait } else { 0 };
            let spread = match self.phase {
                Phase::Scarce => self.half_to_one_hold(now).min(self.half_of_counter(now)),
                _ => self.half_to_one_hold(now).min(NOTHING_GIVEN),
            };
            (now, wait.max(spread))
        });
    }
}

/// The first end of a window among the limits of a grant; `None` without windows.
fn window_end(policy: &Policy, grant: &PrefetchGrant) -> Option<Timestamp> {
    let limits = policy.limits().iter().zip(grant.states());
    let windows = limits.filter(|(limit, _)| limit.is_window());
    let ends = windows.map(|(limit, state)| limit.period_ticks().window_end(state[0]));
    ends.min()
}

impl Limit {
    /// The units of the window of `after` and its start, if the window of `before` has ended.
    fn new_window(&self, before: [u64; 4], after: [u64; 4]) -> Option<(u64, Timestamp)> {
        let period = self.period_ticks();
        let is_new = period.window_end(before[0]) != period.window_end(after[0]);
        let units = match self {
            Limit::FixedWindow(_) => after[1],
            Limit::SlidingWindowCounter(_) => after[2],
            _ => return None,
        };
        is_new.then(|| (units, period.window_start(after[0])))
    }

    /// The units that were charged between two states, or `None` if the later one knows less than it must: a reset, a
    /// refund, or a store that lost its writes. `units` were charged to the earlier one.
    fn units_since(&self, before: [u64; 4], units: u64, after: [u64; 4]) -> Option<u64> {
        let period = self.period_ticks();
        match self {
            Limit::TokenBucket(_) | Limit::LeakyBucket(_) => {
                let forgiven = after[0]
                    .saturating_sub(before[0])
                    .saturating_mul(self.per_period());
                let debt = before[1] + units * period.ticks;
                let charged = after[1].checked_sub(debt.saturating_sub(forgiven))?;
                // A full bucket forgives nothing, so the difference may be less than was charged.
                Some(charged / period.ticks)
            }
            _ if period.window_end(before[0]) != period.window_end(after[0]) => Some(0),
            Limit::SlidingWindowCounter(_) => after[2].checked_sub(before[2] + units),
            _ => after[1].checked_sub(before[1] + units),
        }
    }
}
