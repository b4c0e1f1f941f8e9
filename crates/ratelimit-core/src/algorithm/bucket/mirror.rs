//! The state in the local fallback.

use crate::algorithm::bucket::{Bucket, BucketSnapshot, state::debt_of_state};
use crate::algorithm::{MirrorStep, MirroredReply, State, Step};
use crate::{decision::Level, time::Timestamp};

impl MirrorStep for Bucket {
    fn level_of_units(&self, spent: u64, _now: Timestamp) -> Level {
        Level::new(spent.min(self.capacity) * self.period.ticks)
    }

    fn mirror(&self, slot: &mut Option<State>, reply: MirroredReply) {
        if reply.is_stale {
            return;
        }
        let snapshot = BucketSnapshot {
            at: self.period.tick(reply.now),
            debt: reply.level.spent.min(self.max_debt()),
            refunded: slot
                .as_ref()
                .and_then(debt_of_state)
                .map_or(0, |(_, refunded)| refunded),
            repaired: false,
        };
        self.write(slot, snapshot, 0);
    }
}
