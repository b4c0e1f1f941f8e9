//! Errors of commands.

use std::{error::Error, fmt, io};

/// An error of a command. `Display` prints it with all its causes.
#[derive(Debug)]
pub struct CliError(Box<dyn Error + Send + Sync>);

impl CliError {
    /// Whether the reader of the output has closed the pipe.
    pub fn is_broken_pipe(&self) -> bool {
        let io = self.0.downcast_ref::<io::Error>();
        io.is_some_and(|why| why.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for CliError {
    fn from(why: E) -> CliError {
        CliError(why.into())
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(why) = cause {
            write!(f, ": {why}")?;
            cause = why.source();
        }
        Ok(())
    }
}
