//! The state in the local fallback.

use std::time::Duration;

use crate::algorithm::sliding_window_log::{LogState, SlidingWindowLog};
use crate::algorithm::{Demand, MAX_LOG, MirrorStep, MirroredReply, State, Step};
use crate::{decision::Level, time::Timestamp};

impl MirrorStep for SlidingWindowLog {
    fn level_of_units(&self, spent: u64, now: Timestamp) -> Level {
        Level {
            spent,
            earlier: self.period.tick(now),
        }
    }

    fn share_of_level(&self, whole: Level, spent: u64, _instances: u64, _now: Timestamp) -> Level {
        Level { spent, ..whole }
    }

    /// Keeps the stamps of own hits, and counts the rest of the reply's stamps as old as the oldest.
    fn mirror(&self, slot: &mut Option<State>, reply: MirroredReply) {
        let at = self.period.tick(reply.now);
        let is_last = |log: &LogState| log.stamps.back().is_none_or(|&newest| newest <= at);
        let is_plain = |log: &LogState| log.grain == self.period.grain && is_last(log);
        if reply.is_stale || !self.state(slot.as_ref()).is_some_and(is_plain) {
            // Expired stamps are dropped, and those of a changed grain are converted.
            let snapshot = self.advance(self.state(slot.as_ref()), reply.now, Demand::PEEK);
            self.write(slot, snapshot, 0);
        }
        let log = self.log(slot);
        let count = if reply.is_stale {
            log.len()
        } else {
            log.rest_at = reply.level.earlier;
            // Own hits that the store does not have: they have expired, or their replies were lost.
            let is_unknown = |stamp: &u64| *stamp < reply.level.earlier;
            while log.stamps.front().is_some_and(is_unknown) {
                log.stamps.pop_front();
            }
            usize::try_from(reply.level.spent.min(MAX_LOG)).unwrap_or(usize::MAX)
        };
        for _ in 0..reply.charged {
            if is_last(log) {
                log.stamps.push_back(at);
            } else {
                let index = log.stamps.partition_point(|&stamp| stamp <= at);
                log.stamps.insert(index, at);
            }
        }
        while log.stamps.len() > count {
            log.stamps.pop_front();
        }
        log.rest = u16::try_from(count - log.stamps.len()).unwrap_or(u16::MAX);
    }

    /// Inserts the stamps at their place; those that have left the window are not charged.
    fn catch_up(
        &self,
        slot: &mut Option<State>,
        units: u64,
        charged_at: Timestamp,
        now: Timestamp,
    ) -> Option<Duration> {
        let own = self.state(slot.as_ref());
        let is_of_another = slot.is_some() && own.is_none();
        let snapshot = self.advance(own, now, Demand::PEEK);
        let stamp = self.period.tick(charged_at).min(snapshot.at);
        let charged = units.min(self.remaining(snapshot, 0));
        if charged == 0 || is_of_another || stamp + self.period.ticks <= snapshot.at {
            return None;
        }
        self.write(slot, snapshot, 0);
        let log = self.log(slot);
        let index = log.stamps.partition_point(|&known| known <= stamp);
        for _ in 0..charged {
            log.stamps.insert(index, stamp);
        }
        let newest = log.newest().unwrap_or(stamp);
        Some(self.period.until(newest + self.period.ticks, now))
    }
}
