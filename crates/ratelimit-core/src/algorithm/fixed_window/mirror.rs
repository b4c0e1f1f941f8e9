//! The state in the local fallback.

use crate::algorithm::fixed_window::{FixedWindow, WindowSnapshot};
use crate::algorithm::{MirrorStep, MirroredReply, State};

impl MirrorStep for FixedWindow {
    fn snapshot_of(&self, _known: Option<&State>, reply: MirroredReply) -> Option<WindowSnapshot> {
        Some(WindowSnapshot {
            at: self.period.tick(reply.now),
            count: reply.level.spent.min(self.limit),
            repaired: false,
        })
    }
}
