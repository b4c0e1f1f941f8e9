//! The decisions of several limits, in a buffer that each thread reuses.

use std::{cell::Cell, fmt};

use smallvec::SmallVec;

use crate::decision::LimitDecision;

/// Inline room for the most limits of a policy, 8. A policy never spills to a second allocation.
type LimitDecisions = SmallVec<[LimitDecision; 8]>;

thread_local! {
    /// The buffer that the last decision of this thread left behind. It is empty, and there is at
    /// most one.
    static SPARE: Cell<Option<Box<LimitDecisions>>> = const { Cell::new(None) };
}

/// The decisions of several limits; empty for a single limit.
///
/// - They are boxed, because a decision is moved often and they are large.
/// - A dropped decision returns its box to the thread, so a thread that decides and drops in turn
///   does not allocate. That saves 114 instructions of a check of three limits, 4 %, and its only
///   allocation (`cargo xtask gate`).
/// - A thread keeps one spare box, whatever the number of decisions alive.
/// - A decision that is dropped on another thread moves its box there. A thread that only decides
///   allocates each time.
#[derive(Default)]
pub(super) struct PerLimit(Option<Box<LimitDecisions>>);

impl PerLimit {
    /// No decisions, and no buffer.
    pub(super) const NONE: PerLimit = PerLimit(None);

    /// Appends a decision; the first one takes the buffer of this thread, or allocates one.
    pub(super) fn push(&mut self, limit: LimitDecision) {
        self.0.get_or_insert_with(take_buffer).push(limit);
    }

    /// The decisions in the order of the policy; empty for a single limit.
    #[inline]
    pub(super) fn as_slice(&self) -> &[LimitDecision] {
        self.0.as_ref().map_or(&[], |answers| answers)
    }

    /// The same for a change in place.
    pub(super) fn as_mut_slice(&mut self) -> &mut [LimitDecision] {
        self.0.as_mut().map_or(&mut [], |answers| answers)
    }
}

/// The spare buffer of this thread, or a new one.
fn take_buffer() -> Box<LimitDecisions> {
    // `try_with` fails on a thread that is ending, whose spare is gone.
    let spare = SPARE.try_with(Cell::take).ok().flatten();
    spare.unwrap_or_default()
}

impl Drop for PerLimit {
    /// Returns the buffer to the thread that drops the decision, which may be another than the one
    /// that made it.
    #[inline]
    fn drop(&mut self) {
        if let Some(answers) = self.0.take() {
            return_buffer(answers);
        }
    }
}

/// Keeps one empty buffer for the next decision; a second one is freed.
fn return_buffer(mut answers: Box<LimitDecisions>) {
    // The decisions are `Copy`, so clearing runs no destructor.
    answers.clear();
    let _ = SPARE.try_with(|spare| spare.set(Some(answers)));
}

impl Clone for PerLimit {
    /// A clone has a buffer of its own.
    #[inline]
    fn clone(&self) -> PerLimit {
        let mut copy = PerLimit::NONE;
        self.as_slice().iter().for_each(|limit| copy.push(*limit));
        copy
    }
}

impl PartialEq for PerLimit {
    /// Compares the decisions; an absent buffer equals an empty one.
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
