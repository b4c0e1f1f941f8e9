//! The state in the local fallback.

use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::{Demand, MirrorStep, MirroredReply, State, Step};

impl MirrorStep for Concurrency {
    /// Records the slots of this process only: those of others are released without a reply here.
    fn mirror(&self, slot: &mut Option<State>, reply: MirroredReply) {
        if reply.charged == 0 {
            return;
        }
        let demand = Demand {
            slot: reply.slot,
            ..Demand::PEEK
        };
        let snapshot = self.advance(self.state(slot.as_ref()), reply.now, demand);
        self.write(slot, snapshot, reply.charged);
    }
}
