//! The state in the local fallback.

use crate::algorithm::penalty_box::PenaltyBox;
use crate::algorithm::{MirrorStep, MirroredReply, State, Step};
use crate::{decision::Level, time::Timestamp};

impl MirrorStep for PenaltyBox {
    /// Denials without a block are not spent units, and their end is not known.
    fn level_of_units(&self, _spent: u64, _now: Timestamp) -> Level {
        Level::new(0)
    }

    fn mirror(&self, slot: &mut Option<State>, reply: MirroredReply) {
        let at = self.period.tick(reply.now);
        let words = [at, reply.level.earlier, at, reply.level.spent];
        // A period of denials is taken to begin with the reply: it is longer here than in the store.
        match self.decode_wire(words) {
            Some(snapshot) if !reply.is_stale => self.write(slot, snapshot, 0),
            _ => {}
        }
    }
}
