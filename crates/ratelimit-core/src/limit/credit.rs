//! Units that are given back without naming the charge.

use std::time::Duration;

use crate::limit::{Limit, with_step};
use crate::{
    algorithm::{Demand, State, Step as _},
    time::Timestamp,
};

impl Limit {
    /// Gives up to `units` back, whichever hits spent them. Returns how long the state is needed, `None` if nothing was
    /// given back.
    ///
    /// - The state is brought to the present first, so units that time has restored are not given back again.
    /// - A state of another algorithm stays as it is: another version of the policy may read it again.
    /// - Concurrency limits and penalty boxes have no units to give back.
    pub(crate) fn credit(
        &self,
        state: &mut Option<State>,
        units: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        with_step!(self, step => {
            let own = step.state(state.as_ref())?;
            let snapshot = step.advance(Some(own), now, Demand::PEEK);
            let credited = step.with_credit(snapshot, units)?;
            step.write(state, credited, 0);
            let ttl = step.ttl(credited, 0, now);
            Some(ttl.unwrap_or_else(|| step.reset_after(credited, 0, now)))
        })
    }
}
