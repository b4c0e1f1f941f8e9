//! One step of a trace.

use crate::model::{Change, ModelHit, ModelReceipt, Spec};

/// One step of a trace.
#[derive(Clone, Debug)]
pub enum Step {
    /// A hit.
    Hit(TracedHit),
    /// What becomes of an earlier hit.
    Settle(TracedSettle),
    /// The key is reset.
    Reset {
        /// When.
        now_us: u64,
    },
}

/// One hit of a trace.
#[derive(Clone, Debug)]
pub struct TracedHit {
    /// The policy's limits at that moment.
    pub limits: Vec<Spec>,
    /// When.
    pub now_us: u64,
    /// How much.
    pub cost: u64,
    /// What the policy's throttle mode adds, in percent; 0 is a hard policy.
    pub percent: u64,
    /// Whether the signal of an elastic policy says that there is room.
    pub room: bool,
    /// Who asks for a slot.
    pub slot: u64,
}

/// What becomes of an earlier hit of a trace.
#[derive(Clone, Debug)]
pub struct TracedSettle {
    /// The hit's receipt, as it was given.
    pub charged: ModelReceipt,
    /// The same under the limits that it is redeemed with: sometimes the present ones, as for a receipt that was
    /// kept elsewhere.
    pub receipt: ModelReceipt,
    /// When it is settled.
    pub now_us: u64,
    /// How.
    pub change: Change,
}

impl TracedHit {
    /// What is asked of the policy.
    pub const fn asked(&self) -> ModelHit {
        ModelHit {
            cost: self.cost,
            percent: self.percent,
            room: self.room,
            slot: self.slot,
        }
    }
}
