//! What a store answers.

mod fast_charge;
mod per_limit;

use std::time::Duration;

pub(crate) use self::fast_charge::FastCharge;
use crate::decision::per_limit::PerLimit;
use crate::time::Timestamp;

/// What became of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The hit passed.
    Allowed {
        /// How long a shaping limit asks to wait before going on; zero for all others.
        delay: Duration,
    },
    /// The hit did not pass, and nothing was spent.
    Denied {
        /// After exactly this long the same hit would pass, if nobody else came first.
        retry_after: Duration,
    },
    /// The cost is more than the limit can ever hold: waiting cannot help.
    Impossible,
}

impl Outcome {
    /// Whether the hit passed.
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Outcome::Allowed { .. })
    }

    /// The same with what is left of its wait.
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

/// What one limit of a policy says of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitDecision {
    /// What this limit alone decided.
    pub outcome: Outcome,
    /// The most that can be spent at once: a bucket's capacity, a window's limit.
    pub limit: u64,
    /// What is left after the hit.
    pub remaining: u64,
    /// When nothing spent counts any more (buckets), or the window or its oldest entry ends.
    pub reset_after: Duration,
    /// Whether the hit passed beyond the limit, because its policy throttles softly.
    pub is_over: bool,
    /// What giving the charge back needs to know.
    pub(crate) mark: RefundMark,
    /// Whether it speaks for its policy only when it denies.
    pub(crate) is_silent: bool,
}

/// What a receipt keeps of the charge that one limit made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RefundMark {
    /// A bucket's debt with the charge, 1 for other limits, 0 when the charge cannot be given back.
    pub(crate) debt: u64,
    /// The tokens that the bucket had refunded by then.
    pub(crate) refunded: u64,
}

impl RefundMark {
    pub(crate) const NONE: RefundMark = RefundMark::new(0);

    /// The mark of a charge before which nothing was refunded.
    pub(crate) const fn new(debt: u64) -> RefundMark {
        RefundMark { debt, refunded: 0 }
    }
}

impl LimitDecision {
    /// What a limit of `limit` says that has everything left.
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
            mark: RefundMark::NONE,
            is_silent: false,
        }
    }
}

/// What a store answers to a hit: the whole policy's outcome, and the numbers of the limit that speaks.
///
/// Among several limits, the denying one with the longest wait speaks; when all allow, the one with
/// the least remaining.
///
/// ```
/// use ratelimit_core::{Hit, Key, MemoryStore, Outcome, Policy, Store};
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// What became of the hit.
    pub outcome: Outcome,
    /// The speaker's limit.
    pub limit: u64,
    /// What the speaker has left after the hit.
    pub remaining: u64,
    /// The speaker's time to reset.
    pub reset_after: Duration,
    /// The store's clock when it decided.
    pub now: Timestamp,
    /// Which limit of the policy speaks, by its place.
    pub speaker: usize,
    /// Whether the hit passed beyond a limit, because its policy throttles softly.
    pub is_over: bool,
    /// Whether a denial is meant; otherwise the policy only watches this key.
    pub is_enforced: bool,
    /// The mark of a limit that stands alone.
    mark: RefundMark,
    /// Every limit's own answer, kept only where there are several.
    several: PerLimit,
}

impl Decision {
    /// The decision of a policy with one limit, for stores that decide by means of their own.
    pub fn new(limit: LimitDecision, now: Timestamp) -> Decision {
        Decision::from_limits(now, [limit].into_iter())
    }

    /// The decision of a policy with several limits, in their order: the most restrictive limit gives the
    /// numbers.
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

    /// A decision that is still to be told, in place: moving one is dearer than making it.
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
            is_enforced: true,
            mark: RefundMark::NONE,
            several: PerLimit::NONE,
        }
    }

    /// Takes over what a limit said that stands alone, or speaks for all.
    #[inline]
    pub(crate) fn set_from(&mut self, limit: LimitDecision) {
        self.outcome = limit.outcome;
        self.limit = limit.limit;
        self.remaining = limit.remaining;
        self.reset_after = limit.reset_after;
        self.is_over = limit.is_over && limit.outcome.is_allowed();
        self.mark = limit.mark;
    }

    /// Adds what one of several limits said.
    pub(crate) fn push_limit(&mut self, limit: LimitDecision) {
        self.several.push(limit);
    }

    /// Lets one of the limits that were gathered speak for all.
    pub(crate) fn select_binding_limit(&mut self) {
        let limits = self.several.as_slice();
        let binding = |best: usize, index: usize| {
            if limits[index].outranks(&limits[best]) {
                index
            } else {
                best
            }
        };
        let speaker = (1..limits.len()).fold(0, binding);
        let longest_delay = limits.iter().map(LimitDecision::delay).max();
        let is_over = limits.iter().any(|limit| limit.is_over);
        let reported = limits[speaker];
        self.set_from(reported);
        self.speaker = speaker;
        if let Outcome::Allowed { delay } = &mut self.outcome {
            *delay = longest_delay.unwrap_or_default();
            self.is_over = is_over;
        }
    }

    /// The same, with a denial for `wait` in place of every limit that says [`Outcome::Impossible`].
    pub(crate) fn possible_after(mut self, wait: Duration) -> Decision {
        // A limit that says so speaks before all others.
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

    /// What is left to say of it so much later, if nobody came in between.
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

    /// Whether the hit passed.
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }

    /// Whether to go on: the hit passed, or the policy only watches.
    pub const fn admits(&self) -> bool {
        self.outcome.is_allowed() || !self.is_enforced
    }

    #[inline]
    pub(crate) fn with_enforcement(mut self, is_enforced: bool) -> Decision {
        self.is_enforced = is_enforced;
        self
    }

    /// How long until the same hit would pass: zero when it did, nothing when it never will.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.outcome {
            Outcome::Allowed { .. } => Some(Duration::ZERO),
            Outcome::Denied { retry_after } => Some(retry_after),
            Outcome::Impossible => None,
        }
    }

    /// How long a shaping limit asks to wait before going on.
    pub const fn delay(&self) -> Duration {
        match self.outcome {
            Outcome::Allowed { delay } => delay,
            _ => Duration::ZERO,
        }
    }

    /// Whether a limit has nothing left.
    pub(crate) fn is_exhausted(&self) -> bool {
        match self.several.as_slice() {
            [] => self.remaining == 0,
            limits => limits.iter().any(|limit| limit.remaining == 0),
        }
    }

    /// What giving back would have to know of each limit's charge.
    pub(crate) fn refund_marks(&self) -> impl Iterator<Item = RefundMark> + '_ {
        self.limits().map(|limit| limit.mark)
    }

    /// The answer of each limit, in the policy's order.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = LimitDecision> + '_ {
        let single = LimitDecision {
            remaining: self.remaining,
            reset_after: self.reset_after,
            is_over: self.is_over,
            mark: self.mark,
            ..LimitDecision::new(self.outcome, self.limit)
        };
        let several = self.several.as_slice();
        (0..several.len().max(1)).map(move |index| several.get(index).copied().unwrap_or(single))
    }
}

impl LimitDecision {
    const fn delay(&self) -> Duration {
        match self.outcome {
            Outcome::Allowed { delay } => delay,
            _ => Duration::ZERO,
        }
    }

    /// Whether this limit outranks `other`, which stands before it in the policy.
    fn outranks(&self, other: &LimitDecision) -> bool {
        use Outcome::{Allowed, Denied, Impossible};
        match (self.outcome, other.outcome) {
            (_, Impossible) | (Allowed { .. }, Denied { .. }) => false,
            (Impossible, _) | (Denied { .. }, Allowed { .. }) => true,
            (Denied { retry_after }, Denied { retry_after: its }) => retry_after > its,
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
