//! The decision of a store: the outcome of a hit and the numbers of its limits.

mod fast_charge;
mod level;
mod per_limit;
mod waits;

use std::time::Duration;

pub(crate) use self::{
    fast_charge::FastCharge,
    level::{Level, RefundMark},
};
use crate::decision::per_limit::PerLimit;
use crate::time::Timestamp;

/// The outcome of a hit.
///
/// HTTP answers a denied and an impossible hit with 429, the second without `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The hit passed, and its cost was charged.
    Allowed {
        /// The delay that a shaping leaky bucket requires before the request goes on; zero for all other
        /// limits.
        delay: Duration,
    },
    /// The hit did not pass, and nothing was spent.
    Denied {
        /// The same hit passes after exactly this time, if no other hit spends first. Under a concurrency
        /// limit it is an upper bound.
        retry_after: Duration,
    },
    /// The cost is above the limit, so no wait helps.
    Impossible,
}

impl Outcome {
    /// Whether the hit passed.
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Outcome::Allowed { .. })
    }

    /// The same outcome as it stands `elapsed` later: waits shrink, and end at zero.
    const fn aged_by(self, elapsed: Duration) -> Outcome {
        match self {
            Outcome::Allowed { delay } => Outcome::Allowed {
                delay: delay.saturating_sub(elapsed),
            },
            Outcome::Denied { retry_after } => Outcome::Denied {
                retry_after: retry_after.saturating_sub(elapsed),
            },
            Outcome::Impossible => Outcome::Impossible,
        }
    }
}

/// The decision of one limit of a policy.
///
/// With several limits each has an outcome of its own. A limit with an outcome of `Allowed` was not charged
/// if another limit of the policy denied the hit.
///
/// Two decisions are equal if all public fields are.
#[derive(Clone, Copy, Debug, Eq)]
#[non_exhaustive]
pub struct LimitDecision {
    /// The outcome of this limit alone.
    pub outcome: Outcome,
    /// The most units that can be spent at once: the capacity of a bucket, the limit of a window.
    pub limit: u64,
    /// The units left after the hit.
    pub remaining: u64,
    /// The time until a bucket is full again, a window ends, the oldest stamp of a log leaves, or the last
    /// lease ends.
    pub reset_after: Duration,
    /// Whether the hit used the headroom of a soft or elastic throttle.
    pub is_over: bool,
    /// The state of the limit after the hit: the mark of a refund, and where the local fallback continues.
    pub(crate) level: Level,
    /// Whether the charge can be refunded.
    pub(crate) is_refundable: bool,
    /// Whether this limit gives the numbers of the decision only when it denies (penalty box).
    pub(crate) is_silent: bool,
}

impl PartialEq for LimitDecision {
    /// Compares what a caller can read. The state behind the numbers, and whether the charge can be refunded, are not
    /// part of the answer: a peek equals the check before it.
    fn eq(&self, other: &LimitDecision) -> bool {
        self.outcome == other.outcome
            && self.limit == other.limit
            && self.remaining == other.remaining
            && self.reset_after == other.reset_after
            && self.is_over == other.is_over
    }
}

impl LimitDecision {
    /// A decision with everything left. A [`Store`](crate::store::Store) of an application starts with it and sets
    /// the fields.
    ///
    /// ```
    /// use ratelimit_core::{LimitDecision, Outcome};
    /// use std::time::Duration;
    ///
    /// let allowed = Outcome::Allowed { delay: Duration::ZERO };
    /// let mut decision = LimitDecision::new(allowed, 10);
    /// decision.remaining = 9;
    /// ```
    pub const fn new(outcome: Outcome, limit: u64) -> LimitDecision {
        LimitDecision {
            outcome,
            limit,
            remaining: limit,
            reset_after: Duration::ZERO,
            is_over: false,
            level: Level::UNKNOWN,
            is_refundable: false,
            is_silent: false,
        }
    }
}

/// The decision of a store about one hit: the outcome of the policy, and the numbers of its most
/// restrictive limit.
///
/// The reported limit is, in this order:
///
/// 1. a limit for which the hit is impossible,
/// 2. the denying limit with the longest wait,
/// 3. if all allow, the limit with the least remaining; of equal ones that with the later reset.
///
/// Of limits that are equal in all of this, the first is reported. A penalty box is reported only while it
/// blocks. [`limits`](Decision::limits) has the numbers of every limit.
///
/// ```
/// use ratelimit_core::{Key, MemoryStore, Outcome, Policy, store::{Hit, Store}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let store = MemoryStore::new();
/// let policy = Policy::parse("login", "5/min; fixed_window 100/d")?;
/// let decision = store.hit(Hit::new(&policy, &Key::new("alice")?).cost(5)).await?;
///
/// assert!(matches!(decision.outcome, Outcome::Allowed { .. }));
/// assert_eq!((decision.speaker, decision.remaining), (0, 0));
/// assert_eq!(decision.limits().map(|limit| limit.remaining).collect::<Vec<_>>(), [0, 95]);
/// # Ok(())
/// # }
/// ```
///
/// Two decisions are equal if all public fields and the decisions of all limits are.
#[derive(Clone, Debug, Eq)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that users read by name"
)]
pub struct Decision {
    /// The outcome of the policy: allowed only if every limit allows.
    pub outcome: Outcome,
    /// The reported limit's capacity.
    pub limit: u64,
    /// The units that the reported limit has left after the hit.
    pub remaining: u64,
    /// The time until the reported limit resets.
    pub reset_after: Duration,
    /// The time of the decision, by the clock of the store.
    pub now: Timestamp,
    /// The index of the reported limit in the policy.
    pub speaker: usize,
    /// Whether the hit used the headroom of a limit.
    pub is_over: bool,
    /// Whether the limiter decided from memory, with units that the store had charged before
    /// ([`Policy::with_prefetch`](crate::Policy::with_prefetch)).
    ///
    /// `remaining` is then what the store had left at its last answer, with the units on hand.
    pub is_prefetched: bool,
    /// Whether a denial applies; unset if the policy is in shadow mode for this key.
    #[doc(alias = "shadow")]
    pub is_enforced: bool,
    /// Whether the charge of a single limit can be refunded.
    is_refundable: bool,
    /// The level of a single limit.
    level: Level,
    /// The decision of every limit, if there are several; `level` is then that of the reported one.
    several: PerLimit,
}

impl PartialEq for Decision {
    /// Compares what a caller can read, as [`LimitDecision`] does.
    fn eq(&self, other: &Decision) -> bool {
        self.outcome == other.outcome
            && self.limit == other.limit
            && self.remaining == other.remaining
            && self.reset_after == other.reset_after
            && self.now == other.now
            && self.speaker == other.speaker
            && self.is_over == other.is_over
            && self.is_prefetched == other.is_prefetched
            && self.is_enforced == other.is_enforced
            && self.limits().eq(other.limits())
    }
}

impl Decision {
    /// The decision of a policy with one limit, for a [`Store`](crate::store::Store) of an application.
    pub fn new(limit: LimitDecision, now: Timestamp) -> Decision {
        Decision::from_limits(now, [limit].into_iter())
    }

    /// The decision of a policy from those of its limits, in the order of the policy.
    ///
    /// ```
    /// use ratelimit_core::{Decision, LimitDecision, Outcome, Timestamp};
    /// use std::time::Duration;
    ///
    /// let allowed = LimitDecision::new(Outcome::Allowed { delay: Duration::ZERO }, 10);
    /// let denied = LimitDecision::new(Outcome::Denied { retry_after: Duration::from_secs(5) }, 100);
    /// let decision = Decision::from_limits(Timestamp::from_secs(0), [allowed, denied].into_iter());
    /// assert_eq!((decision.speaker, decision.limit), (1, 100));
    /// ```
    pub fn from_limits(
        now: Timestamp,
        mut limits: impl ExactSizeIterator<Item = LimitDecision>,
    ) -> Decision {
        let mut decision = Decision::empty(now);
        if limits.len() == 1 {
            limits
                .next()
                .into_iter()
                .for_each(|limit| decision.set_from(limit));
        } else {
            limits.for_each(|limit| decision.push_limit(limit));
            decision.select_binding_limit();
        }
        decision
    }

    /// An empty decision to be filled in place. It is about 100 bytes: copying it right after it was
    /// written stalls on store forwarding.
    #[inline]
    pub(crate) const fn empty(now: Timestamp) -> Decision {
        Decision {
            outcome: Outcome::Impossible,
            limit: 0,
            remaining: 0,
            reset_after: Duration::ZERO,
            now,
            speaker: 0,
            is_over: false,
            is_prefetched: false,
            is_enforced: true,
            is_refundable: false,
            level: Level::UNKNOWN,
            several: PerLimit::NONE,
        }
    }

    /// Takes over the numbers of the reported limit.
    #[inline]
    pub(crate) fn set_from(&mut self, limit: LimitDecision) {
        self.outcome = limit.outcome;
        self.limit = limit.limit;
        self.remaining = limit.remaining;
        self.reset_after = limit.reset_after;
        self.is_over = limit.is_over && limit.outcome.is_allowed();
        self.is_refundable = limit.is_refundable;
        self.level = limit.level;
    }

    /// Adds the decision of one of several limits.
    pub(crate) fn push_limit(&mut self, limit: LimitDecision) {
        self.several.push(limit);
    }

    /// Selects the reported limit. An allowed decision has the longest delay of all limits.
    pub(crate) fn select_binding_limit(&mut self) {
        let limits = self.several.as_slice();
        // `fold` keeps the earlier limit unless the later one outranks it, so the first of equals is
        // reported.
        let binding = |best: usize, index: usize| {
            if limits[index].outranks(&limits[best]) {
                index
            } else {
                best
            }
        };
        let speaker = (1..limits.len()).fold(0, binding);
        let max_delay = limits.iter().map(LimitDecision::delay).max();
        let is_over = limits.iter().any(|limit| limit.is_over);
        let reported = limits[speaker];
        self.set_from(reported);
        self.speaker = speaker;
        if let Outcome::Allowed { delay } = &mut self.outcome {
            *delay = max_delay.unwrap_or_default();
            self.is_over = is_over;
        }
    }

    /// Replaces [`Outcome::Impossible`] by a denial for `wait`.
    ///
    /// [`FailureMode::LocalShare`](crate::FailureMode::LocalShare) needs it: a cost above the share can
    /// pass again when the store is back.
    pub(crate) fn possible_after(mut self, wait: Duration) -> Decision {
        // An impossible limit outranks all others, so the outcome of the policy shows whether there is one.
        if self.outcome != Outcome::Impossible {
            return self;
        }
        let denied = Outcome::Denied { retry_after: wait };
        self.outcome = denied;
        for limit in self.several.as_mut_slice() {
            if limit.outcome == Outcome::Impossible {
                limit.outcome = denied;
            }
        }
        if !self.several.as_slice().is_empty() {
            self.select_binding_limit();
        }
        self
    }

    /// The decision with a denial by the limit at `index`, which blocks for `wait`.
    pub(crate) fn blocked(mut self, index: usize, wait: Duration) -> Decision {
        let denied = Outcome::Denied { retry_after: wait };
        if let Some(limit) = self.several.as_mut_slice().get_mut(index) {
            limit.outcome = denied;
            limit.remaining = 0;
            self.select_binding_limit();
        } else {
            self.outcome = denied;
            self.remaining = 0;
        }
        self
    }

    /// The decision as it stands `elapsed` later, if no other hit came in between. The deny cache answers
    /// with it.
    pub(crate) fn aged_by(mut self, elapsed: Duration) -> Decision {
        self.outcome = self.outcome.aged_by(elapsed);
        self.reset_after = self.reset_after.saturating_sub(elapsed);
        self.now = self.now + elapsed;
        for limit in self.several.as_mut_slice() {
            limit.outcome = limit.outcome.aged_by(elapsed);
            limit.reset_after = limit.reset_after.saturating_sub(elapsed);
        }
        self
    }

    /// Whether the hit passed all limits, enforced or not.
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }

    /// Whether the request may go on: the hit passed, or the policy is in shadow mode for this key.
    pub const fn admits(&self) -> bool {
        self.outcome.is_allowed() || !self.is_enforced
    }

    /// Sets whether a denial applies.
    #[inline]
    pub(crate) fn with_enforcement(mut self, is_enforced: bool) -> Decision {
        self.is_enforced = is_enforced;
        self
    }

    /// The time until the same hit passes: zero if it passed, `None` if it never will.
    #[doc(alias = "Retry-After")]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.outcome {
            Outcome::Allowed { .. } => Some(Duration::ZERO),
            Outcome::Denied { retry_after } => Some(retry_after),
            Outcome::Impossible => None,
        }
    }

    /// The delay before the request goes on; zero unless a leaky bucket shapes it.
    pub const fn delay(&self) -> Duration {
        match self.outcome {
            Outcome::Allowed { delay } => delay,
            _ => Duration::ZERO,
        }
    }

    /// Whether a limit has no unit left.
    pub(crate) fn is_exhausted(&self) -> bool {
        match self.several.as_slice() {
            [] => self.remaining == 0,
            limits => limits.iter().any(|limit| limit.remaining == 0),
        }
    }

    /// The refund mark of each limit, in the order of the policy.
    pub(crate) fn refund_marks(&self) -> impl Iterator<Item = RefundMark> + '_ {
        self.limits().map(|limit| limit.refund_mark())
    }

    /// The decision of each limit, in the order of the policy.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = LimitDecision> + '_ {
        let single = self.only_limit();
        let several = self.several.as_slice();
        // A single limit has no buffer; its decision is that of the policy.
        (0..several.len().max(1)).map(move |index| several.get(index).copied().unwrap_or(single))
    }
}

impl LimitDecision {
    /// The delay of this limit; zero unless it allows and shapes.
    const fn delay(&self) -> Duration {
        match self.outcome {
            Outcome::Allowed { delay } => delay,
            _ => Duration::ZERO,
        }
    }

    /// Whether this limit is reported in place of `other`, which precedes it in the policy.
    fn outranks(&self, other: &LimitDecision) -> bool {
        use Outcome::{Allowed, Denied, Impossible};
        match (self.outcome, other.outcome) {
            (_, Impossible) | (Allowed { .. }, Denied { .. }) => false,
            (Impossible, _) | (Denied { .. }, Allowed { .. }) => true,
            (Denied { retry_after }, Denied { retry_after: its }) => retry_after > its,
            // A penalty box that allows never replaces a real limit, and is replaced by one.
            (Allowed { .. }, Allowed { .. }) if self.is_silent != other.is_silent => {
                other.is_silent
            }
            (Allowed { .. }, Allowed { .. }) => {
                self.remaining < other.remaining
                    || (self.remaining == other.remaining && self.reset_after > other.reset_after)
            }
        }
    }
}
