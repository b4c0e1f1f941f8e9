//! The states of a limit in the local fallback: set by replies, divided among instances, owed to the store.

use std::time::Duration;

use crate::limit::{Limit, with_step};
use crate::{
    algorithm::{Demand, MirrorStep as _, MirroredReply, State, Step as _},
    decision::Level,
    time::Timestamp,
};

impl Limit {
    /// Replaces the state by that of a store's reply, and returns how long it is needed at most,
    /// and whether its level was replaced.
    ///
    /// Replies of one batch have the same time; the largest level of them is the last one.
    pub(crate) fn mirror(
        &self,
        state: &mut Option<State>,
        mut reply: MirroredReply,
        is_same_time: bool,
    ) -> (Duration, bool) {
        with_step!(self, step => {
            if is_same_time {
                let known = step.advance(step.state(state.as_ref()), reply.now, Demand::PEEK);
                reply.is_stale |= step.level(known, 0).spent > reply.level.spent;
            }
            step.mirror(state, reply);
            if step.counts_units() {
                // No unit counts for longer. The exact time would take another step: 4 % of a check on Redis in all.
                return (reply.reset_after + self.period(), !reply.is_stale);
            }
            let snapshot = step.advance(step.state(state.as_ref()), reply.now, Demand::PEEK);
            let ttl = step.ttl(snapshot, 0, reply.now);
            let ttl = ttl.unwrap_or_else(|| step.reset_after(snapshot, 0, reply.now));
            (ttl, !reply.is_stale)
        })
    }

    /// The level of a limit of which only the `spent` units are known.
    pub(crate) fn level_of_units(&self, spent: u64, now: Timestamp) -> Level {
        with_step!(self, step => step.level_of_units(spent, now))
    }

    /// Turns the state of `whole` into that of this limit, its share among `instances`: the units left are divided and
    /// rounded up.
    pub(crate) fn take_share(
        &self,
        whole: &Limit,
        state: &mut Option<State>,
        instances: u64,
        now: Timestamp,
    ) {
        if !self.counts_units() {
            return;
        }
        let (left, level) = with_step!(whole, step => {
            let snapshot = step.advance(step.state(state.as_ref()), now, Demand::PEEK);
            (step.remaining(snapshot, 0), step.level(snapshot, 0))
        });
        let spent = self.capacity().saturating_sub(left.div_ceil(instances));
        let level = with_step!(self, step => step.share_of_level(level, spent, instances, now));
        let reply = MirroredReply {
            level,
            now,
            reset_after: Duration::ZERO,
            charged: 0,
            slot: 0,
            is_stale: false,
        };
        self.mirror(state, reply, false);
    }

    /// Charges hits that were decided elsewhere at `charged_at`, as far as there is room. Returns how long the state is
    /// needed, `None` if nothing was charged.
    pub(crate) fn catch_up(
        &self,
        state: &mut Option<State>,
        units: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> Option<Duration> {
        with_step!(self, step => step.catch_up(state, units, charged_at, now))
    }

    /// The units that the state counts in the present window.
    pub(crate) fn units_spent(&self, state: Option<&State>, now: Timestamp) -> u64 {
        with_step!(self, step => {
            step.units_spent(step.advance(step.state(state), now, Demand::PEEK))
        })
    }

    /// Whether the limit keeps a stamp for each unit.
    pub(crate) const fn has_stamps(&self) -> bool {
        matches!(self, Limit::SlidingWindowLog(_))
    }

    /// The times of the units of a log that are younger than its period; none for other limits.
    pub(crate) fn stamps(&self, state: Option<&State>, now: Timestamp) -> Vec<Timestamp> {
        match (self, state) {
            (Limit::SlidingWindowLog(log), Some(State::SlidingWindowLog(state))) => {
                log.live_stamps(state, now)
            }
            _ => Vec::new(),
        }
    }

    /// Removes up to `units` from the state, whichever hit they were charged by.
    ///
    /// Only for states of owed hits, which no receipt names. A refund of a stored charge needs its mark.
    pub(crate) fn remove_units(&self, state: &mut Option<State>, units: u64, now: Timestamp) {
        if !self.counts_units() || state.is_none() {
            return;
        }
        with_step!(self, step => {
            let snapshot = step.advance(step.state(state.as_ref()), now, Demand::PEEK);
            let level = step.level(snapshot, 0);
            let removed = step.level_of_units(units, now).spent;
            let level = Level {
                spent: level.spent.saturating_sub(removed),
                ..level
            };
            let reply = MirroredReply {
                level,
                now,
                reset_after: Duration::ZERO,
                charged: 0,
                slot: 0,
                is_stale: false,
            };
            step.mirror(state, reply);
        });
    }
}
