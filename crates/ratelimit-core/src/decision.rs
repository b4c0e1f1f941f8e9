//! The decision of a store: the outcome of a hit and the numbers of its limits.

mod charged;

use std::time::Duration;

use smallvec::SmallVec;

pub use self::charged::Charged;
pub(crate) use self::charged::{ChargedLimit, RefundMark, RefundMarks};
use crate::time::Timestamp;

/// The most limits of one policy.
pub(crate) const MAX_LIMITS: usize = 8;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Whether the numbers come from the state of the limit. Otherwise another limit has denied without a look at this
    /// one, and the numbers are those of an unused limit.
    pub is_read: bool,
    /// Whether the decision reports this limit only when it denies, as a penalty box.
    pub is_silent: bool,
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
            is_read: true,
            is_silent: false,
        }
    }

    /// The decision of a limit that was not read: everything is left.
    pub(crate) const fn unread(limit: u64) -> LimitDecision {
        let delay = Duration::ZERO;
        LimitDecision {
            is_read: false,
            ..LimitDecision::new(Outcome::Allowed { delay }, limit)
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
/// let decision = store.hit(Hit::new(&policy, &Key::new("alice")?).cost(5)).await?.decision;
///
/// assert!(matches!(decision.outcome, Outcome::Allowed { .. }));
/// assert_eq!((decision.binding, decision.remaining), (0, 0));
/// assert_eq!(decision.limits().map(|limit| limit.remaining).collect::<Vec<_>>(), [0, 95]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub binding: usize,
    /// Whether the hit used the headroom of a limit.
    pub is_over: bool,
    /// Whether the limiter decided from memory, with units that the store had charged before
    /// ([`Policy::with_prefetch`](crate::Policy::with_prefetch)).
    ///
    /// `remaining` is then what the store had left when it charged these units, and those that are not spent yet.
    pub is_prefetched: bool,
    /// Whether a denial applies; unset if the policy is in shadow mode for this key.
    #[doc(alias = "shadow")]
    pub is_enforced: bool,
    /// Whether the reported limit was read.
    is_read: bool,
    /// Whether the reported limit is reported only when it denies.
    is_silent: bool,
    /// The decision of every limit in the order of the policy, if there are several.
    ///
    /// A thin pointer keeps a [`Check`](crate::Check) within 128 bytes. Larger values are moved by a call of `memcpy`.
    several: Option<Box<LimitDecisions>>,
}

type LimitDecisions = SmallVec<[LimitDecision; MAX_LIMITS]>;

/// Collects into a box in place.
fn boxed(limits: impl Iterator<Item = LimitDecision>) -> Box<LimitDecisions> {
    let mut several = Box::<LimitDecisions>::default();
    several.extend(limits);
    several
}

impl Decision {
    /// The decision of a policy with one limit, for a [`Store`](crate::store::Store) of an application.
    #[inline]
    pub fn new(limit: LimitDecision, now: Timestamp) -> Decision {
        Decision::of_reported(limit, 0, now)
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
    /// assert_eq!((decision.binding, decision.limit), (1, 100));
    /// ```
    pub fn from_limits(
        now: Timestamp,
        mut limits: impl ExactSizeIterator<Item = LimitDecision>,
    ) -> Decision {
        match limits.next() {
            Some(only) if limits.len() == 0 => Decision::of_reported(only, 0, now),
            first => Decision::of_several(boxed(first.into_iter().chain(limits)), now),
        }
    }

    /// The decision with the numbers of the reported limit, which is the only one so far.
    #[inline]
    fn of_reported(limit: LimitDecision, binding: usize, now: Timestamp) -> Decision {
        Decision {
            outcome: limit.outcome,
            limit: limit.limit,
            remaining: limit.remaining,
            reset_after: limit.reset_after,
            now,
            binding,
            is_over: limit.is_over && limit.outcome.is_allowed(),
            is_prefetched: false,
            is_enforced: true,
            is_read: limit.is_read,
            is_silent: limit.is_silent,
            several: None,
        }
    }

    /// The decision of several limits. An allowed one has the longest delay of all.
    fn of_several(several: Box<LimitDecisions>, now: Timestamp) -> Decision {
        // `fold` keeps the earlier limit unless the later one outranks it, so the first of equals is
        // reported.
        let outranking = |best: usize, index: usize| {
            if several[index].outranks(&several[best]) {
                index
            } else {
                best
            }
        };
        let binding = (1..several.len()).fold(0, outranking);
        let mut decision = Decision::of_reported(several[binding], binding, now);
        if let Outcome::Allowed { delay } = &mut decision.outcome {
            *delay = several
                .iter()
                .map(LimitDecision::delay)
                .max()
                .unwrap_or_default();
            decision.is_over = several.iter().any(|limit| limit.is_over);
        }
        decision.several = Some(several);
        decision
    }

    /// Changes the decision of each limit by its index in the policy, and selects the reported limit again.
    fn with_limits(self, mut change: impl FnMut(usize, &mut LimitDecision)) -> Decision {
        let changed = if let Some(mut several) = self.several {
            for (index, limit) in several.iter_mut().enumerate() {
                change(index, limit);
            }
            Decision::of_several(several, self.now)
        } else {
            let mut only = self.only_limit();
            change(self.binding, &mut only);
            Decision::of_reported(only, self.binding, self.now)
        };
        Decision {
            is_prefetched: self.is_prefetched,
            is_enforced: self.is_enforced,
            ..changed
        }
    }

    /// Replaces [`Outcome::Impossible`] by a denial for `wait`.
    ///
    /// [`FailureMode::LocalShare`](crate::FailureMode::LocalShare) needs it: a cost above the share can
    /// pass again when the store is back.
    pub(crate) fn possible_after(self, wait: Duration) -> Decision {
        // An impossible limit outranks all others, so the outcome of the policy shows whether there is one.
        if self.outcome != Outcome::Impossible {
            return self;
        }
        self.with_limits(|_, limit| {
            if limit.outcome == Outcome::Impossible {
                limit.outcome = Outcome::Denied { retry_after: wait };
            }
        })
    }

    /// The decision with a denial by the limit at `index`, which blocks for `wait`.
    pub(crate) fn blocked(self, index: usize, wait: Duration) -> Decision {
        self.with_limits(|own, limit| {
            if own == index {
                limit.outcome = Outcome::Denied { retry_after: wait };
                limit.remaining = 0;
            }
        })
    }

    /// Shortens the waits of the limits whose index `is_bounded` accepts to at most `max_wait`.
    pub(crate) fn with_waits_up_to(
        self,
        max_wait: Duration,
        is_bounded: impl Fn(usize) -> bool,
    ) -> Decision {
        self.with_limits(|index, limit| {
            if let Outcome::Denied { retry_after } = &mut limit.outcome
                && is_bounded(index)
            {
                *retry_after = max_wait.min(*retry_after);
            }
        })
    }

    /// The decision as it stands `elapsed` later, if no other hit came in between. The deny cache answers
    /// with it.
    pub(crate) fn aged_by(mut self, elapsed: Duration) -> Decision {
        self.outcome = self.outcome.aged_by(elapsed);
        self.reset_after = self.reset_after.saturating_sub(elapsed);
        self.now = self.now + elapsed;
        for limit in self.several.iter_mut().flat_map(|several| &mut **several) {
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

    /// Whether the numbers come from the state of the limit.
    ///
    /// A member of a joint hit is not read if another one is denied without a call to the store. `remaining` is then its
    /// whole limit.
    pub const fn is_read(&self) -> bool {
        self.is_read
    }

    /// The decision of the reported limit, which is the only one of most policies.
    const fn only_limit(&self) -> LimitDecision {
        LimitDecision {
            remaining: self.remaining,
            reset_after: self.reset_after,
            is_over: self.is_over,
            is_read: self.is_read,
            is_silent: self.is_silent,
            ..LimitDecision::new(self.outcome, self.limit)
        }
    }

    /// The decision of each limit, in the order of the policy.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = LimitDecision> + '_ {
        let single = self.only_limit();
        let several: &[LimitDecision] = self.several.as_ref().map_or(&[], |several| several);
        // The decision of a single limit is that of the policy.
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
