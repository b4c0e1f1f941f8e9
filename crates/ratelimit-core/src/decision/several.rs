//! The answers of several limits, in memory that is used again.

use std::{cell::Cell, fmt};

use smallvec::SmallVec;

use super::LimitDecision;

/// As many as a policy has at the most; more would still fit, on the heap.
type Answers = SmallVec<[LimitDecision; 8]>;

thread_local! {
    /// What the last decision of this thread left behind, for the next one.
    static SPARE: Cell<Option<Box<Answers>>> = const { Cell::new(None) };
}

/// The answers of several limits; none where a limit stands alone.
///
/// They are kept aside, because a decision is moved often and they are large. A thread that decides
/// and drops in turn allocates nothing for them.
#[derive(Default)]
pub(super) struct Several(Option<Box<Answers>>);

impl Several {
    pub(super) const NONE: Several = Several(None);

    pub(super) fn push(&mut self, limit: LimitDecision) {
        self.0.get_or_insert_with(spare).push(limit);
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[LimitDecision] {
        self.0.as_ref().map_or(&[], |answers| answers)
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [LimitDecision] {
        self.0.as_mut().map_or(&mut [], |answers| answers)
    }
}

fn spare() -> Box<Answers> {
    // A thread that is ending has no spare any more.
    let spare = SPARE.try_with(Cell::take).ok().flatten();
    spare.unwrap_or_default()
}

impl Drop for Several {
    #[inline]
    fn drop(&mut self) {
        if let Some(answers) = self.0.take() {
            put_aside(answers);
        }
    }
}

fn put_aside(mut answers: Box<Answers>) {
    answers.clear();
    let _ = SPARE.try_with(|spare| spare.set(Some(answers)));
}

impl Clone for Several {
    fn clone(&self) -> Several {
        let mut copy = Several::NONE;
        self.as_slice().iter().for_each(|limit| copy.push(*limit));
        copy
    }
}

impl PartialEq for Several {
    fn eq(&self, other: &Several) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Several {}

impl fmt::Debug for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}
