//! The state in the local fallback.

use crate::algorithm::sliding_window_counter::{CounterSnapshot, SlidingWindowCounter};
use crate::algorithm::{MirrorStep, MirroredReply, State};
use crate::{decision::Level, time::Timestamp};

impl MirrorStep for SlidingWindowCounter {
    /// The previous window is divided too, so that the share frees up as the whole does.
    fn share_of_level(&self, whole: Level, spent: u64, instances: u64, now: Timestamp) -> Level {
        let shared = CounterSnapshot {
            at: self.period.tick(now),
            prev: (whole.earlier / instances).min(self.limit),
            cur: 0,
            repaired: false,
        };
        Level {
            spent: spent.saturating_sub(self.carried(shared)),
            earlier: shared.prev,
        }
    }

    fn units_spent(&self, snapshot: CounterSnapshot) -> u64 {
        snapshot.cur
    }

    fn snapshot_of(&self, _known: Option<&State>, reply: MirroredReply) -> Option<CounterSnapshot> {
        Some(CounterSnapshot {
            at: self.period.tick(reply.now),
            prev: reply.level.earlier.min(self.limit),
            cur: reply.level.spent.min(self.limit),
            repaired: false,
        })
    }
}
