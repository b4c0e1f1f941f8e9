//! Bounds on the waits of a decision.

use std::time::Duration;

use crate::decision::{Decision, Outcome};

impl Decision {
    /// Shortens the waits of the limits whose index `is_bounded` accepts to at most `max_wait`.
    pub(crate) fn with_waits_up_to(
        mut self,
        max_wait: Duration,
        is_bounded: impl Fn(usize) -> bool,
    ) -> Decision {
        let shorten = |index: usize, outcome: &mut Outcome| {
            if let Outcome::Denied { retry_after } = outcome
                && is_bounded(index)
            {
                *retry_after = max_wait.min(*retry_after);
            }
        };
        if self.several.as_slice().is_empty() {
            shorten(self.speaker, &mut self.outcome);
            return self;
        }
        for (index, limit) in self.several.as_mut_slice().iter_mut().enumerate() {
            shorten(index, &mut limit.outcome);
        }
        self.select_binding_limit();
        self
    }
}
