//! The state in the local fallback.

use crate::algorithm::penalty_box::{PenaltyBox, PenaltySnapshot};
use crate::algorithm::{MirrorStep, MirroredReply, State, Step};
use crate::{decision::Level, time::Timestamp};

impl MirrorStep for PenaltyBox {
    /// Denials without a block are not spent units, and their end is not known.
    fn level_of_units(&self, _spent: u64, _now: Timestamp) -> Level {
        Level::new(0)
    }

    fn snapshot_of(&self, _known: Option<&State>, reply: MirroredReply) -> Option<PenaltySnapshot> {
        let at = self.period.tick(reply.now);
        // A period of denials is taken to begin with the reply: it is longer here than in the store.
        self.decode_wire([at, reply.level.earlier, at, reply.level.spent])
    }
}
