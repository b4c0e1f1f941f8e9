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
/// let verdict = Limiter::in_memory().check(&policy, &Key::explicit("alice")?).await;
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
        reason: Reason,
        /// What the process's own store said, in the local modes.
        decision: Option<Decision>,
    },
}

impl Verdict {
    /// Whether to go on.
    pub const fn is_allowed(&self) -> bool {
        match self {
            Verdict::Checked(decision) => decision.lets_pass(),
            Verdict::Unchecked { mode, decision, .. } => match (mode, decision) {
                (FailureMode::Closed, _) => false,
                (_, Some(decision)) => decision.lets_pass(),
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
pub enum Reason {
    /// There is no connection to it.
    Unavailable,
    /// It did not answer within the time budget.
    TimedOut,
    /// More calls were under way than it takes.
    Overloaded,
    /// It answered with an error about this one call.
    Refused,
}

impl Reason {
    pub(super) const fn of(error: &StoreError) -> Reason {
        match error {
            StoreError::Unavailable { .. } => Reason::Unavailable,
            StoreError::TimedOut => Reason::TimedOut,
            StoreError::Overloaded => Reason::Overloaded,
            StoreError::Refused { .. } => Reason::Refused,
        }
    }

    /// The name in metrics and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Unavailable => "unavailable",
            Reason::TimedOut => "timed_out",
            Reason::Overloaded => "overloaded",
            Reason::Refused => "refused",
        }
    }
}

/// An error with all its causes, on one line.
pub(super) struct Causes<'a>(pub(super) &'a dyn std::error::Error);

impl fmt::Display for Causes<'_> {
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
