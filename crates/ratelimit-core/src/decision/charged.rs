//! The decision of a store with what the limiter needs to change the charge later.

use std::ops::Deref;

use smallvec::SmallVec;

use crate::{
    decision::{Decision, LimitDecision, boxed},
    time::Timestamp,
};

/// What a [`Store`](crate::store::Store) returns for a hit: the decision, and the marks by which its charge can be
/// refunded. It reads as its decision.
///
/// A store of an application returns a [`Decision`] as `decision.into()`. Its charges can be released by their slot, but
/// not be refunded.
///
/// ```
/// use ratelimit_core::{Decision, LimitDecision, Outcome, Timestamp, store::Charged};
/// use std::time::Duration;
///
/// let allowed = LimitDecision::new(Outcome::Allowed { delay: Duration::ZERO }, 10);
/// let charged: Charged = Decision::new(allowed, Timestamp::from_secs(0)).into();
/// assert!(charged.is_allowed());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Charged {
    /// The decision.
    pub decision: Decision,
    /// The mark of each limit, in the order of the policy. A denied hit may have none.
    pub(crate) marks: RefundMarks,
}

/// The marks of a charge, in the order of the limits. Missing marks count as [`RefundMark::NONE`].
pub(crate) type RefundMarks = SmallVec<[RefundMark; 1]>;

/// The mark of a charge that a receipt keeps for each limit (`docs/decisions/0008-settling.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RefundMark {
    /// The debt of a bucket right after the charge, in its own unit; any other number for other limits; 0 if the
    /// charge cannot be refunded.
    pub(crate) debt: u64,
    /// The count of refunded tokens of the bucket at the charge, plus 2^32 for each change of its unit
    /// (`lua/README.md`).
    pub(crate) refunded: u64,
}

impl RefundMark {
    /// The mark of a charge that cannot be refunded, or of no charge.
    pub(crate) const NONE: RefundMark = RefundMark::new(0);

    /// The mark of a charge before which nothing was refunded.
    pub(crate) const fn new(debt: u64) -> RefundMark {
        RefundMark { debt, refunded: 0 }
    }
}

/// The decision of one limit, and the mark of its charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargedLimit {
    /// The position of the limit in its policy.
    pub(crate) index: usize,
    pub(crate) decision: LimitDecision,
    pub(crate) mark: RefundMark,
}

impl Charged {
    /// The answer of a policy from those of all its limits.
    #[inline]
    pub(crate) fn from_limits(now: Timestamp, limits: &mut [ChargedLimit]) -> Charged {
        if let [only] = limits {
            return Charged::of_limit(only.decision, only.mark, now);
        }
        limits.sort_unstable_by_key(|limit| limit.index);
        let decisions = limits.iter().map(|limit| limit.decision);
        let decision = Decision::of_several(boxed(decisions), now);
        let marks = if decision.is_allowed() {
            RefundMarks::from_vec(limits.iter().map(|limit| limit.mark).collect())
        } else {
            RefundMarks::new()
        };
        Charged { decision, marks }
    }

    /// The answer of a policy with one limit.
    #[inline]
    pub(crate) fn of_limit(limit: LimitDecision, mark: RefundMark, now: Timestamp) -> Charged {
        Charged {
            decision: Decision::new(limit, now),
            marks: RefundMarks::from_buf([mark]),
        }
    }

    /// The same charge with another decision.
    pub(crate) fn map(self, change: impl FnOnce(Decision) -> Decision) -> Charged {
        Charged {
            decision: change(self.decision),
            marks: self.marks,
        }
    }
}

impl Deref for Charged {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.decision
    }
}

impl From<Decision> for Charged {
    /// The decision of a hit whose charge cannot be refunded.
    fn from(decision: Decision) -> Charged {
        Charged {
            decision,
            marks: RefundMarks::new(),
        }
    }
}
