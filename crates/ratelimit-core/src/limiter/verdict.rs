//! The answer of a limiter.

use std::fmt;

use crate::limiter::reservation::receipt_of;
use crate::{
    decision::{Decision, RefundMarks},
    policy::FailureMode,
    store::{Hit, Receipt, StoreError},
};

/// The answer of a limiter: the decision of the store, or that of the failure mode.
///
/// [`is_allowed`](Verdict::is_allowed) is all that a caller needs to act on. Match on the variants to treat an outage
/// differently from a denial.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy, Verdict};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let policy = Policy::parse("api", "1/min")?;
/// let verdict = Limiter::in_memory().check(&policy, &Key::new("alice")?).await;
///
/// match &verdict {
///     Verdict::Checked(decision) => assert_eq!(decision.remaining, 0),
///     Verdict::Unchecked { reason, .. } => eprintln!("without the store: {}", reason.as_str()),
///     _ => {}
/// }
/// assert!(verdict.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a verdict says whether to go on"]
#[doc(alias = "allowed")]
#[doc(alias = "denied")]
#[non_exhaustive]
pub enum Verdict {
    /// The store decided.
    Checked(Decision),
    /// The store did not answer, and the failure mode decided.
    Unchecked {
        /// The mode that decided. In shadow mode [`FailureMode::Closed`] is replaced by `Open`.
        mode: FailureMode,
        /// Why the store did not decide.
        reason: UncheckedReason,
        /// The decision of the local memory store in the local modes; `None` in the modes `Open` and `Closed`.
        decision: Option<Decision>,
    },
}

impl Verdict {
    /// Whether the hit may go on.
    ///
    /// A denial of a policy in shadow mode is allowed here; [`Decision::is_allowed`] is the decision itself.
    pub const fn is_allowed(&self) -> bool {
        match self {
            Verdict::Checked(decision) => decision.admits(),
            Verdict::Unchecked { mode, decision, .. } => match (mode, decision) {
                // For keys that are not enforced the limiter has replaced `Closed` by `Open`.
                (FailureMode::Closed, _) => false,
                (_, Some(decision)) => decision.admits(),
                (_, None) => true,
            },
        }
    }

    /// The decision of the store, or of the local store; `None` in the modes `Open` and `Closed`.
    pub const fn decision(&self) -> Option<&Decision> {
        match self {
            Verdict::Checked(decision) => Some(decision),
            Verdict::Unchecked { decision, .. } => decision.as_ref(),
        }
    }

    /// Whether a member of a joint hit fits. Enforcement is in its role.
    pub(super) fn fits(&self) -> bool {
        match self {
            Verdict::Checked(decision) => decision.is_allowed(),
            Verdict::Unchecked { mode, decision, .. } => match decision {
                Some(decision) => decision.is_allowed(),
                None => *mode != FailureMode::Closed,
            },
        }
    }
}

/// A verdict, and the marks by which its charge can be refunded.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    /// The marks of the limits that were charged, in the store that decided.
    pub(super) marks: RefundMarks,
}

impl Answer {
    /// A denial without a call to the store.
    pub(super) fn of_denial(verdict: Verdict) -> Answer {
        Answer {
            verdict,
            marks: RefundMarks::new(),
        }
    }
}

/// The answer of a limiter to a joint hit.
///
/// [`is_allowed`](JointVerdict::is_allowed) is all that a caller needs to act on. The members show which of them denied,
/// and when they would fit.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy, store::{Hit, JointHit}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let (user, route) = (Policy::parse("user", "5/min")?, Policy::parse("route", "1/min")?);
/// let (limiter, key) = (Limiter::in_memory(), Key::new("alice")?);
/// let members = [&user, &route].map(|policy| JointHit::new(Hit::new(policy, &key)));
/// assert!(limiter.check_joint(&members)?.await.is_allowed);
///
/// let denied = limiter.check_joint(&members)?.await;
/// let waits = denied.members.iter().filter_map(|member| member.verdict.decision()?.retry_after());
/// println!("denied, try again in {:?}", waits.max());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a verdict says whether to go on"]
#[non_exhaustive]
pub struct JointVerdict {
    /// Whether the joint hit passes.
    pub is_allowed: bool,
    /// The answers to the members, in their order.
    pub members: Vec<MemberVerdict>,
}

/// The answer to one member of a joint hit.
///
/// | `verdict` | `is_charged` | meaning |
/// |---|---|---|
/// | allowed | yes | the member fits, and the joint hit passes |
/// | allowed | no | the joint hit is denied by another member; or a dry run, a peek, or the failure mode `Open` |
/// | denied | no | the member does not fit |
///
/// [`receipt`](MemberVerdict::receipt) makes the receipt of a charged member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberVerdict {
    /// The member's own verdict. A member may be allowed although the joint hit is not.
    ///
    /// If another member was denied without a call to the store, a member that was not
    /// [read](crate::Decision::is_read) reports its limits as unused.
    pub verdict: Verdict,
    /// Whether the member was charged, by the store or by the local fallback.
    pub is_charged: bool,
    /// The marks of the charge.
    pub(super) marks: RefundMarks,
}

impl MemberVerdict {
    /// Makes the receipt of a member that was charged; `None` for one that was not.
    ///
    /// `hit` must be the hit of this member. Another hit would refund another charge.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy, store::{Hit, JointHit}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let (policy, limiter, alice) = (Policy::parse("user", "5/min")?, Limiter::in_memory(), Key::new("alice")?);
    /// let hit = Hit::new(&policy, &alice).cost(3);
    /// let verdict = limiter.check_joint(&[JointHit::new(hit)])?.await;
    ///
    /// let receipt = verdict.members[0].receipt(hit).expect("it was charged");
    /// limiter.settle(&receipt, 0).await?;
    /// assert_eq!(limiter.peek(&policy, &alice).await.decision().unwrap().remaining, 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn receipt(&self, hit: Hit<'_>) -> Option<Receipt> {
        self.is_charged
            .then(|| receipt_of(hit, &self.verdict, &self.marks))?
    }
}

/// Why the store did not decide.
///
/// It is the label `reason` of `rate_limiter_unchecked_total`, and a field of the log lines about the failure mode.
///
/// ```
/// use ratelimit_core::{UncheckedReason, Verdict};
///
/// /// Whether an operator should look at the store.
/// fn is_outage(verdict: &Verdict) -> bool {
///     let reasons = [UncheckedReason::Unavailable, UncheckedReason::TimedOut];
///     matches!(verdict, Verdict::Unchecked { reason, .. } if reasons.contains(reason))
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UncheckedReason {
    /// The store cannot be reached.
    Unavailable,
    /// The store did not answer within the time budget.
    TimedOut,
    /// Too many calls to the store were in flight.
    Overloaded,
    /// The store answered with an error about this call.
    Refused,
}

impl UncheckedReason {
    /// The reason that corresponds to an error.
    pub(super) const fn of(error: &StoreError) -> UncheckedReason {
        match error {
            StoreError::Unavailable { .. } => UncheckedReason::Unavailable,
            StoreError::TimedOut | StoreError::TooLate => UncheckedReason::TimedOut,
            StoreError::Overloaded => UncheckedReason::Overloaded,
            StoreError::Refused { .. } => UncheckedReason::Refused,
        }
    }

    /// The name in metrics, logs and responses, such as `"timed_out"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            UncheckedReason::Unavailable => "unavailable",
            UncheckedReason::TimedOut => "timed_out",
            UncheckedReason::Overloaded => "overloaded",
            UncheckedReason::Refused => "refused",
        }
    }
}

/// Displays an error with all its causes on one line, separated by `: `.
pub(super) struct ErrorChain<'a>(pub(super) &'a dyn std::error::Error);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
