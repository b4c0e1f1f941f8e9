//! What a limiter answers.

use std::fmt;

use crate::{decision::Decision, policy::FailureMode, store::StoreError};

/// What a limiter answers.
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
pub enum Verdict {
    /// The store decided.
    Checked(Decision),
    /// The store did not decide, and the failure mode did.
    Unchecked {
        /// Which mode that was.
        mode: FailureMode,
        /// Why the store did not decide.
        reason: UncheckedReason,
        /// What the process's own store said, in the local modes.
        decision: Option<Decision>,
    },
}

impl Verdict {
    /// Whether to go on.
    pub const fn is_allowed(&self) -> bool {
        match self {
            Verdict::Checked(decision) => decision.admits(),
            Verdict::Unchecked { mode, decision, .. } => match (mode, decision) {
                (FailureMode::Closed, _) => false,
                (_, Some(decision)) => decision.admits(),
                (_, None) => true,
            },
        }
    }

    /// The decision, whoever made it; nothing when no store did.
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
    /// There is no connection to it.
    Unavailable,
    /// It did not answer within the time budget.
    TimedOut,
    /// More calls were under way than it takes.
    Overloaded,
    /// It answered with an error about this one call.
    Refused,
}

impl UncheckedReason {
    pub(super) const fn of(error: &StoreError) -> UncheckedReason {
        match error {
            StoreError::Unavailable { .. } => UncheckedReason::Unavailable,
            StoreError::TimedOut => UncheckedReason::TimedOut,
            StoreError::Overloaded => UncheckedReason::Overloaded,
            StoreError::Refused { .. } => UncheckedReason::Refused,
        }
    }

    /// The name in metrics and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            UncheckedReason::Unavailable => "unavailable",
            UncheckedReason::TimedOut => "timed_out",
            UncheckedReason::Overloaded => "overloaded",
            UncheckedReason::Refused => "refused",
        }
    }
}

/// An error with all its causes, on one line.
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
