//! The state in the local fallback.

use crate::algorithm::bucket::{Bucket, BucketSnapshot, state::debt_of_state};
use crate::algorithm::{MirrorStep, MirroredReply, State};
use crate::{decision::Level, time::Timestamp};

impl MirrorStep for Bucket {
    fn level_of_units(&self, spent: u64, _now: Timestamp) -> Level {
        Level::new(spent.min(self.capacity) * self.period.ticks)
    }

    fn snapshot_of(&self, known: Option<&State>, reply: MirroredReply) -> Option<BucketSnapshot> {
        Some(BucketSnapshot {
            at: self.period.tick(reply.now),
            debt: reply.level.spent.min(self.max_debt()),
            refunded: known
                .and_then(debt_of_state)
                .map_or(0, |(_, refunded)| refunded),
            repaired: false,
        })
    }
}
