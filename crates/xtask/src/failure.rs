//! Problems of a command, with advice.

use std::{error, fmt};

/// The problems that a chore found, with the advice that mends them.
#[derive(Debug)]
pub(crate) struct Failure {
    problems: Vec<String>,
    advice: String,
}

impl Failure {
    pub(crate) fn new(problem: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure {
            problems: vec![problem.into()],
            advice: advice.into(),
        }
    }

    /// Fails when there are any problems.
    pub(crate) fn unless_none(problems: Vec<String>, advice: &str) -> Result<(), Failure> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(Failure {
            problems,
            advice: advice.to_owned(),
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "error: {problem}")?;
        }
        write!(f, "  help: {}", self.advice)
    }
}

impl error::Error for Failure {}
