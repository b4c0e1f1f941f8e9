//! The states of a budget that a prefetch call reads before it charges.

use crate::budget::Budget;
use crate::{
    algorithm::WireState,
    policy::{EffectiveLimit, LimitGroup},
    time::Timestamp,
};

impl Budget {
    /// Reports the state of each limit at `now`, and whether it was too far ahead of the clock.
    pub(crate) fn wire_states(
        &self,
        group: &LimitGroup,
        now: Timestamp,
        mut each: impl FnMut(&EffectiveLimit, (WireState, bool)),
    ) {
        let has_expired = now >= self.expires;
        let slots = self.states.as_slice();
        for (position, effective) in group.limits.iter().enumerate() {
            let slot = slots.get(position).and_then(Option::as_ref);
            let slot = slot.filter(|_| !has_expired);
            each(effective, effective.limit.wire_state(slot, now));
        }
    }
}
