//! The level of a limit: the numbers of its state that a decision carries to the local fallback.

use crate::decision::{Decision, LimitDecision};

/// The state of a limit in two numbers, by which the local fallback mirrors a store.
///
/// | algorithm | `spent` | `earlier` |
/// |---|---|---|
/// | buckets | debt, in the unit of the bucket | tokens refunded before a charge |
/// | fixed window | count of the window | 0 |
/// | sliding window counter | count of the present window | count of the previous window |
/// | sliding window log | live stamps | tick of the oldest |
/// | penalty box | end of the block, in ticks | 64 x denials + level of the block |
/// | concurrency | 1 | 0 |
///
/// It is not part of the answer, so decisions that differ in it only are equal: a denial of the deny cache has the level of
/// an earlier moment.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct Level {
    /// The first number of the algorithm.
    pub(crate) spent: u64,
    /// The second number of the algorithm.
    pub(crate) earlier: u64,
}

impl PartialEq for Level {
    /// Levels are not part of an answer.
    fn eq(&self, _other: &Level) -> bool {
        true
    }
}

impl Level {
    /// The level of a decision that a store of an application made: only `remaining` is known.
    pub(crate) const UNKNOWN: Level = Level::new(u64::MAX);

    /// The level of a limit that could not be read. It changes nothing.
    pub(crate) const NOT_READ: Level = Level {
        spent: u64::MAX,
        earlier: u64::MAX,
    };

    /// Whether the limit was read.
    pub(crate) const fn is_read(self) -> bool {
        self.spent != u64::MAX || self.earlier != u64::MAX
    }

    /// A level whose second number is 0.
    pub(crate) const fn new(spent: u64) -> Level {
        Level { spent, earlier: 0 }
    }
}

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

impl LimitDecision {
    /// The mark that a refund of this charge needs; none if it cannot be refunded.
    pub(crate) const fn refund_mark(&self) -> RefundMark {
        if self.is_refundable {
            RefundMark {
                debt: self.level.spent,
                refunded: self.level.earlier,
            }
        } else {
            RefundMark::NONE
        }
    }
}

impl Decision {
    /// Whether the numbers come from the state of the limit.
    ///
    /// A member of a joint hit is not read if another one is denied without a call to the store. `remaining` is then its
    /// whole limit.
    pub const fn is_read(&self) -> bool {
        self.level.is_read()
    }

    /// The decision of the reported limit, which is the only one of most policies.
    pub(crate) const fn only_limit(&self) -> LimitDecision {
        LimitDecision {
            remaining: self.remaining,
            reset_after: self.reset_after,
            is_over: self.is_over,
            is_refundable: self.is_refundable,
            level: self.level,
            ..LimitDecision::new(self.outcome, self.limit)
        }
    }

    /// The decision of every limit, in the order of the policy; empty for a single one.
    pub(crate) fn several_limits(&self) -> &[LimitDecision] {
        self.several.as_slice()
    }
}
