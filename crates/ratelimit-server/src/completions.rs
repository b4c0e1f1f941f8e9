//! `completions`: scripts with which a shell completes commands and flags.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;

use crate::cli_error::CliError;

/// Prints a script with which a shell completes commands and flags.
///
/// For bash: source <(ratelimit-server completions bash)
#[derive(Args, Clone, Copy, Debug)]
pub struct Completions {
    /// The shell that reads the script
    shell: Shell,
}

impl Completions {
    /// Writes the script for the command line `cli`.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn run(&self, mut cli: clap::Command, out: &mut impl Write) -> Result<(), CliError> {
        let name = cli.get_name().to_owned();
        // The generator panics if it cannot write, as into a closed pipe.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut cli, name, &mut script);
        let script = String::from_utf8(script)?;
        // For a program with a dash in its name, the script for bash looks commands up under two names, and completes
        // no flag of theirs (clap_complete 4.6.11).
        let script = script.replace("ratelimit__subcmd__server", "ratelimit__server");
        Ok(out.write_all(script.as_bytes())?)
    }
}
