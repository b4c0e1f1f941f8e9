//! The interface of the algorithms for the local fallback: states that a store's replies set.

use std::time::Duration;

use crate::algorithm::{State, Step};
use crate::{decision::Level, time::Timestamp};

/// The reply of a store about one limit, for the local fallback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MirroredReply {
    /// The level after the hit.
    pub(crate) level: Level,
    /// The store's time of the reply.
    pub(crate) now: Timestamp,
    /// The time until the limit resets, as the reply says.
    pub(crate) reset_after: Duration,
    /// The units that the hit was charged; 0 if it was denied, or spent nothing.
    pub(crate) charged: u64,
    /// The id of the concurrency slot that the hit took; 0 without one.
    pub(crate) slot: u64,
    /// Whether the state is that of a later reply.
    pub(crate) is_stale: bool,
}

/// The part of an algorithm that the local fallback needs beside its [`Step`].
///
/// A level is what a reply says of a state: two numbers, without the time at which it was written. A mirrored state has
/// the time of the reply.
pub(crate) trait MirrorStep: Step {
    /// The level of a limit of which only the `spent` units are known.
    fn level_of_units(&self, spent: u64, _now: Timestamp) -> Level {
        Level::new(spent)
    }

    /// The level of this limit as a share of another one, of which `spent` units are used up here.
    fn share_of_level(&self, _whole: Level, spent: u64, _instances: u64, now: Timestamp) -> Level {
        self.level_of_units(spent, now)
    }

    /// The units that the snapshot counts, without those of an earlier window.
    fn units_spent(&self, snapshot: Self::Snapshot) -> u64 {
        self.limit().saturating_sub(self.remaining(snapshot, 0))
    }

    /// The snapshot that has the level of a store's reply, for the state that was known; `None` changes nothing.
    ///
    /// An algorithm that keeps more of its state than a level has its own [`mirror`](Self::mirror) instead.
    fn snapshot_of(&self, _known: Option<&State>, _reply: MirroredReply) -> Option<Self::Snapshot> {
        None
    }

    /// Replaces the state in `slot` by the level that a store replied.
    ///
    /// A stale reply was decided before the one that the state is of: only its own charge counts, where the state
    /// lists charges one by one.
    fn mirror(&self, slot: &mut Option<State>, reply: MirroredReply) {
        if reply.is_stale {
            return;
        }
        if let Some(snapshot) = self.snapshot_of(slot.as_ref(), reply) {
            self.write(slot, snapshot, 0);
        }
    }

    /// Charges hits of `charged_at` that were decided elsewhere, as far as there is room. A log stamps them with that time.
    fn catch_up(
        &self,
        slot: &mut Option<State>,
        units: u64,
        _charged_at: Timestamp,
        now: Timestamp,
    ) -> Option<Duration> {
        self.charge_more(slot, units, now)
    }
}
