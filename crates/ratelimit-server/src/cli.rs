//! The command line.

use clap::{Parser, Subcommand};

use crate::{
    check_config::CheckConfig, client_key::ClientKey, completions::Completions, config::Settings,
    health::Health, simulate::Simulate,
};

/// Answers over REST whether a request may pass, with budgets in memory or in Redis.
///
/// Without a command it serves. Every flag can also stand in the file that --config names, under the
/// same name, and in the environment; a flag wins over the environment, and that over the file.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ratelimit-server",
    version,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    /// The command; without one, the server runs.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The settings of the server.
    #[command(flatten)]
    pub settings: Settings,
}

/// Commands besides serving.
#[derive(Clone, Debug, Subcommand)]
#[non_exhaustive]
pub enum Command {
    /// Reads a configuration file and says what is wrong with it.
    CheckConfig(CheckConfig),
    /// Replays a trace on a virtual clock, and prints what every hit would be answered.
    Simulate(Simulate),
    /// Asks a server whether it is alive, for container health checks.
    Health(Health),
    /// Says whose budget a request would spend, and how that was found.
    ClientKey(ClientKey),
    /// Prints a script with which a shell completes commands and flags.
    Completions(Completions),
}
