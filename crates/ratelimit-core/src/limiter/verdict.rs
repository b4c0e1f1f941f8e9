//! The answer of a limiter.

use std::fmt;

use crate::{decision::Decision, policy::FailureMode, store::StoreError};

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
/// }
/// assert!(verdict.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a verdict says whether to go on"]
#[doc(alias = "allowed")]
#[doc(alias = "denied")]
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
}

/// Why the store did not decide.
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
    /// Hits that passed locally have not been charged to the store yet, and with them the budget is spent.
    CatchingUp,
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
            UncheckedReason::CatchingUp => "catching_up",
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
