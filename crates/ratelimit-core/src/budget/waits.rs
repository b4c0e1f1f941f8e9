//! Waits that end when the states of a budget expire.

use std::time::Duration;

use crate::{
    decision::{LimitDecision, Outcome},
    time::Timestamp,
};

/// How long the stored states still count; `Duration::MAX` if there are none or they never expire.
pub(crate) fn remaining_ttl(expires: Timestamp, now: Timestamp) -> Duration {
    if expires > now && expires < Timestamp::MAX {
        expires.since(now)
    } else {
        Duration::MAX
    }
}

/// Cuts waits to the remaining life of the states: a changed limit may compute longer ones, but the hit passes then.
pub(crate) fn cap_waits(decision: &mut LimitDecision, left: Duration) {
    decision.reset_after = decision.reset_after.min(left);
    if let Outcome::Denied { retry_after } = &mut decision.outcome {
        *retry_after = (*retry_after).min(left);
    }
}
