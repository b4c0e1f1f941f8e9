//! The state in the local fallback.

use crate::algorithm::fixed_window::{FixedWindow, WindowSnapshot};
use crate::algorithm::{MirrorStep, MirroredReply, State, Step};

impl MirrorStep for FixedWindow {
    fn mirror(&self, slot: &mut Option<State>, reply: MirroredReply) {
        if reply.is_stale {
            return;
        }
        let snapshot = WindowSnapshot {
            at: self.period.tick(reply.now),
            count: reply.level.spent.min(self.limit),
            repaired: false,
        };
        self.write(slot, snapshot, 0);
    }
}
