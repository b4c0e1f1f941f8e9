//! The state of one hot key: its slices, its estimates, and the next call.
//!
//! | state | a hit | next |
//! |---|---|---|
//! | prefetched | spends units of a slice | open, when they are used up |
//! | open | is sent to the store | prefetched; scarce, when the store denies it |
//! | scarce | spends units, or is denied from memory; no hit waits | prefetched, when the share is left again |
//! | off | is sent to the store, because two round trips are longer than a hold | prefetched |
//!
//! - `aside.rs`: a hit that units and the store pay together. `grant.rs`: an answer of the store.
//! - `schedule.rs`: when the next call leaves.
//! - It reads no clock and sends nothing; `keeper.rs` does.

mod aside;
mod grant;
mod schedule;

use std::time::Duration;

use smallvec::SmallVec;

pub(super) use self::schedule::KeeperStep;
use crate::limiter::prefetch::{
    age::Moment,
    sizing::{MAX_HOLD, MIN_UNITS, Sizing},
    slice::Slice,
};
use crate::{
    decision::{Charged, GrantNumbers, PrefetchedCharge},
    policy::{Policy, Throttle},
    store::LimitStates,
    time::{Timestamp, micros},
};

/// The time after which a key without hits is given up, at least: 1 s.
const IDLE: u64 = 1_000_000;
/// The time between two samples of the demand: 5 ms.
const SAMPLE: u64 = 5_000;
/// The pause of a key that cannot be prefetched, after which its round trip is measured again: 1 s.
const OFF: u64 = 1_000_000;

/// The time of charge that stands for units of two slices. No slice was charged then.
const SEVERAL_SLICES: Timestamp = Timestamp::from_micros(1);

/// The slices and estimates of one key that is hit often.
pub(super) struct HotKey {
    sizing: Sizing,
    /// At most two, the older one first.
    slices: SmallVec<[Slice; 2]>,
    /// The last answer of the store.
    last: Option<LastGrant>,
    /// The answer from which the rate of the fleet is counted.
    fleet_from: Option<FleetSample>,
    phase: Phase,
    /// No call leaves before this span after this moment.
    pause: Option<(Moment, u64)>,
    /// The last hit that the store denied since its last answer to a call.
    denied: Option<DeniedCost>,
    /// Since when less than the share was left.
    low_since: Option<Moment>,
    /// When the first hit was counted that made the key hot. Slices cover no more time than since then.
    hot_since: Moment,
    /// When the last hit came. A key without hits is given up.
    last_hit: Moment,
    /// When the demand was last measured.
    sampled_at: Moment,
    /// Units that were wanted since `sampled_at`.
    wanted: u64,
    /// A call is due when no more units than this are left.
    low_water: u64,
    /// Whether the keeper was woken since it last looked.
    is_woken: bool,
    /// Whether the slices count no more: the key was reset or given up.
    is_ended: bool,
    /// How often the store knew less than it must. Slices from before that count no more.
    losses: u64,
    /// Units of slices that are gone which were void unspent, for the metrics.
    void: u64,
}

/// The last answer of the store, with the moments before its call was sent and after it was answered.
struct LastGrant {
    sent: Moment,
    received: Moment,
    /// The decision of a peek at the time of the grant; hits are answered with its numbers.
    charged: Charged,
    units: u64,
    /// The same numbers of a single limit.
    single: Option<GrantNumbers>,
    /// The first end of a window of the limits.
    window_end: Option<Timestamp>,
    /// Whether one of them is a counter, which frees units until its window ends.
    has_counter: bool,
    states: LimitStates,
}

/// A cost that the store denied, and its wait in microseconds.
#[derive(Clone, Copy)]
struct DeniedCost {
    cost: u64,
    at: Moment,
    wait: u64,
}

/// The states after an answer.
struct FleetSample {
    at: Timestamp,
    units: u64,
    states: LimitStates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Hits spend units, or are sent to the store.
    Prefetched,
    /// Hits spend units, or are denied from memory.
    Scarce,
    /// Nothing is prefetched: the store refuses, or two round trips are longer than a hold.
    Off,
}

/// The answer of a hot key to a hit.
#[derive(Debug)]
pub(super) enum HotAnswer {
    /// Units paid a hit on a single limit.
    Paid(PrefetchedCharge),
    /// Decided from memory: a hit on several limits, or a denial.
    Decided(Charged),
    /// The store has to decide.
    Ask,
}

impl HotKey {
    /// A key of which `units` were wanted between `since` and `now`.
    pub(super) fn new(policy: &Policy, units: u64, since: Moment, now: Moment) -> HotKey {
        let share = policy.prefetch().unwrap_or(0);
        let mut sizing = Sizing::new(policy.limits().iter(), share, policy.cost().get());
        sizing.observe_demand(units, now.since(since).max(1));
        HotKey {
            sizing,
            slices: SmallVec::new(),
            last: None,
            fleet_from: None,
            // Until the first answer has shown that the round trip is short enough.
            phase: Phase::Off,
            pause: None,
            denied: None,
            low_since: None,
            hot_since: since,
            last_hit: now,
            sampled_at: now,
            wanted: 0,
            low_water: 0,
            is_woken: false,
            is_ended: false,
            losses: 0,
            void: 0,
        }
    }

    /// Decides a hit of `cost` from memory, if possible. Returns also whether to wake the keeper.
    #[inline(always)]
    pub(super) fn check(&mut self, policy: &Policy, cost: u64, now: Moment) -> (HotAnswer, bool) {
        self.wanted += cost;
        self.last_hit = now;
        let Some(last) = &self.last else {
            return (HotAnswer::Ask, false);
        };
        let at = last.store_time(now);
        let Some(slice) = self.try_spend(cost, at) else {
            return self.check_unpaid(policy, cost, at, now);
        };
        let usable = self.slices.iter().map(Slice::unspent).sum();
        let wakes = usable <= self.low_water && !self.is_woken;
        self.is_woken |= wakes;
        let last = self.last.as_ref().expect("a slice has its grant");
        let answer = match &last.single {
            Some(numbers) => HotAnswer::Paid(numbers.charge(at, usable, slice)),
            None => HotAnswer::Decided(last.charged.prefetched(at, last.units, usable, slice)),
        };
        (answer, wakes)
    }

    /// Denies a hit that the units on hand do not pay, or leaves it to the store.
    #[inline(never)]
    fn check_unpaid(
        &mut self,
        policy: &Policy,
        cost: u64,
        at: Timestamp,
        now: Moment,
    ) -> (HotAnswer, bool) {
        let is_denied = self.is_scarce_at(now) && !self.is_counter_ending(now);
        if is_denied && self.may_deny(policy, cost) {
            let denial = self.denial(policy, cost, at, now);
            return (HotAnswer::Decided(denial), false);
        }
        // While no call may leave, the keeper wakes by its own timer.
        let is_paused = self
            .pause
            .is_some_and(|(since, span)| now.since(since) < span);
        let wakes = !self.is_woken && !is_paused;
        self.is_woken |= wakes;
        (HotAnswer::Ask, wakes)
    }

    /// Whether the budget is scarce by an answer that is not too old: at most one hold, or the pause after it, and the
    /// time of the next call. A key that was idle for longer knows nothing of the budget.
    fn is_scarce_at(&self, now: Moment) -> bool {
        let is_recent = |(since, span): (Moment, u64)| {
            now.since(since) < span.max(self.sizing.hold()) + self.sizing.lead()
        };
        self.phase == Phase::Scarce && self.pause.is_some_and(is_recent)
    }

    /// Whether a hit may be denied from memory while the budget is scarce. Headroom is known to the store alone.
    fn may_deny(&self, policy: &Policy, cost: u64) -> bool {
        cost <= self.sizing.cap() / 2 && matches!(policy.throttle(), Throttle::Hard)
    }

    /// Spends units of both slices, the older one first. Returns the slice that paid, or [`SEVERAL_SLICES`].
    #[inline]
    fn try_spend(&mut self, cost: u64, at: Timestamp) -> Option<Timestamp> {
        let first = self.slices.first_mut()?;
        if first.try_spend(cost, at) {
            return Some(first.charged_at());
        }
        let mut missing = cost;
        if self.usable(at) < cost {
            return None;
        }
        for slice in &mut self.slices {
            let units = slice.usable(at).min(missing);
            slice.try_spend(units, at);
            missing -= units;
        }
        self.drop_empty(at);
        Some(SEVERAL_SLICES)
    }

    /// Takes back `units` that a hit spent of the slice that was charged at `charged_at`, as if it had not come.
    ///
    /// Returns `false` when the slice is used up, or some of it is void.
    pub(super) fn try_unspend(&mut self, charged_at: Timestamp, units: u64, now: Moment) -> bool {
        let Some(at) = self.last.as_ref().map(|last| last.store_time(now)) else {
            return false;
        };
        let mut slices = self.slices.iter_mut();
        let slice = slices.find(|slice| slice.charged_at() == charged_at);
        slice.is_some_and(|slice| slice.try_unspend(units, at))
    }

    /// The units that may be spent at the store's time `at`.
    #[inline]
    fn usable(&mut self, at: Timestamp) -> u64 {
        self.slices.iter_mut().map(|slice| slice.usable(at)).sum()
    }

    /// Drops slices without live units, and counts what lapsed in them.
    fn drop_empty(&mut self, at: Timestamp) {
        let void = &mut self.void;
        self.slices.retain(|slice| {
            let is_empty = slice.usable(at) == 0;
            *void += slice.take_void();
            !is_empty
        });
    }

    /// The units on hand, for peeks and metrics.
    pub(super) fn usable_at(&mut self, now: Moment) -> u64 {
        match self.last.as_ref().map(|last| last.store_time(now)) {
            Some(at) => self.usable(at),
            None => 0,
        }
    }

    /// Whether the key was reset, or its units were given back.
    pub(super) const fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Records that the store denied a hit of `cost`: until the next call, hits are denied from memory.
    pub(super) fn record_denial(
        &mut self,
        policy: &Policy,
        cost: u64,
        retry_after: Duration,
        now: Moment,
    ) {
        if self.last.is_none() || self.phase != Phase::Prefetched || !self.may_deny(policy, cost) {
            return;
        }
        self.phase = Phase::Scarce;
        let wait = micros(retry_after);
        self.denied = Some(DeniedCost {
            cost,
            at: now,
            wait,
        });
        let pause = wait.min(MAX_HOLD).max(self.half_to_one_hold(now));
        self.pause = Some((now, pause));
    }

    /// The denial of a hit while the budget is scarce: until the next call, and no shorter than the store's wait.
    fn denial(&mut self, policy: &Policy, cost: u64, at: Timestamp, now: Moment) -> Charged {
        let usable = self.usable(at);
        let pause = self
            .pause
            .map_or(0, |(since, span)| span.saturating_sub(now.since(since)));
        let denied = self.denied.filter(|denied| denied.cost <= cost);
        let wait = denied.map_or(0, |denied| denied.wait.saturating_sub(now.since(denied.at)));
        let pause = Duration::from_micros(pause.max(wait).max(1));
        let last = self.last.as_ref().expect("a scarce key has an answer");
        // The wait at the answer, less the time since: `at` is late by the margin of the clock.
        let since = Duration::from_micros(now.since(last.received));
        let waits = policy.limits().iter().zip(&last.states);
        let waits = waits.map(|(limit, state)| {
            let wait = limit.wait_after(*state, last.units, cost, last.charged.decision.now);
            wait.saturating_sub(since)
        });
        last.charged
            .prefetch_denial(at, last.units, usable, pause, waits)
    }

    /// Records that a call failed: the next one leaves after a hold, or much later where the store refuses.
    ///
    /// The key is not scarce afterwards: hits that the units on hand do not pay are sent to the store, and the failure
    /// mode decides if it does not answer.
    pub(super) fn record_error(&mut self, is_refused: bool, now: Moment) {
        self.phase = if is_refused {
            Phase::Off
        } else {
            Phase::Prefetched
        };
        let span = if is_refused {
            OFF
        } else {
            self.sizing.hold().max(SAMPLE)
        };
        self.pause = Some((now, span));
    }

    /// The share in percent that the round trip needs, while two of them are longer than a hold.
    pub(super) fn needed_percent(&self) -> Option<u64> {
        let is_off =
            self.phase == Phase::Off && self.last.is_some() && self.sizing.cap() >= MIN_UNITS;
        is_off.then(|| self.sizing.needed_percent())
    }

    /// Ends the key. Returns what windows can be given back: units and the time of their charge.
    pub(super) fn end(&mut self, now: Moment) -> SmallVec<[(u64, Timestamp); 2]> {
        self.is_ended = true;
        let Some(at) = self.last.as_ref().map(|last| last.store_time(now)) else {
            return SmallVec::new();
        };
        let slices = std::mem::take(&mut self.slices);
        let with_windows = slices.into_iter().filter(Slice::has_window);
        let returned = with_windows.map(|mut slice| (slice.usable(at), slice.charged_at()));
        returned.filter(|(units, _)| *units > 0).collect()
    }

    /// The units that became void unspent since the last call.
    pub(super) fn take_void(&mut self) -> u64 {
        let in_slices: u64 = self.slices.iter_mut().map(Slice::take_void).sum();
        std::mem::take(&mut self.void) + in_slices
    }
}

impl LastGrant {
    /// The store's time at `now`, never too early: the call was decided after it was sent.
    #[inline]
    fn store_time(&self, now: Moment) -> Timestamp {
        Timestamp::from_micros(self.charged.decision.now.as_micros() + now.age_since(self.sent))
    }
}

#[cfg(test)]
mod tests;
