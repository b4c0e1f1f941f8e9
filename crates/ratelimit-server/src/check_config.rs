//! `check-config`: says what is wrong with a configuration file.

use std::{io::Write, path::PathBuf};

use clap::Args;

use crate::{
    config::{Config, FileSettings},
    failure::Failure,
    screen::Screen,
};

/// Reads a configuration file and says what is wrong with it.
///
/// Ends with 0 when the server would start with it, and with 1 when it would not.
#[derive(Args, Clone, Debug)]
pub struct CheckConfig {
    /// The file, in TOML
    file: PathBuf,
}

impl CheckConfig {
    /// Writes to `out` what the file means.
    ///
    /// # Errors
    ///
    /// When the server would refuse the file.
    pub fn run(&self, out: &mut impl Write) -> Result<(), Failure> {
        let config = Config::of(FileSettings::read(&self.file)?.into_settings())?;
        let name = self.file.display();
        for policy in config.rules.policies.iter() {
            writeln!(out, "{name}: policy {} = {policy}", policy.name())?;
        }
        let listen = config.listen;
        let screen = Screen {
            config: &config,
            listen,
        };
        if screen.is_exposed() && config.rules.admin.is_none() {
            writeln!(
                out,
                "{name}: warning: listens beyond this machine without an admin token"
            )?;
        }
        writeln!(out, "{name}: ok")?;
        Ok(())
    }
}
