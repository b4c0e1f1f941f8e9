//! The answers of several limits, in memory that is used again.

use std::{cell::Cell, fmt};

use smallvec::SmallVec;

use crate::decision::LimitDecision;

/// As many as a policy has at the most; more would still fit, on the heap.
type LimitDecisions = SmallVec<[LimitDecision; 8]>;

thread_local! {
    /// What the last decision of this thread left behind, for the next one.
    static SPARE: Cell<Option<Box<LimitDecisions>>> = const { Cell::new(None) };
}

/// The answers of several limits; none where a limit stands alone.
///
/// They are kept aside, because a decision is moved often and they are large. A thread that decides
/// and drops in turn allocates nothing for them.
#[derive(Default)]
pub(super) struct PerLimit(Option<Box<LimitDecisions>>);

impl PerLimit {
    pub(super) const NONE: PerLimit = PerLimit(None);

    pub(super) fn push(&mut self, limit: LimitDecision) {
        self.0.get_or_insert_with(take_buffer).push(limit);
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[LimitDecision] {
        self.0.as_ref().map_or(&[], |answers| answers)
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [LimitDecision] {
        self.0.as_mut().map_or(&mut [], |answers| answers)
    }
}

fn take_buffer() -> Box<LimitDecisions> {
    // A thread that is ending has no spare any more.
    let spare = SPARE.try_with(Cell::take).ok().flatten();
    spare.unwrap_or_default()
}

impl Drop for PerLimit {
    #[inline]
    fn drop(&mut self) {
        if let Some(answers) = self.0.take() {
            return_buffer(answers);
        }
    }
}

fn return_buffer(mut answers: Box<LimitDecisions>) {
    answers.clear();
    let _ = SPARE.try_with(|spare| spare.set(Some(answers)));
}

impl Clone for PerLimit {
    fn clone(&self) -> PerLimit {
        let mut copy = PerLimit::NONE;
        self.as_slice().iter().for_each(|limit| copy.push(*limit));
        copy
    }
}

impl PartialEq for PerLimit {
    fn eq(&self, other: &PerLimit) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for PerLimit {}

impl fmt::Debug for PerLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}
