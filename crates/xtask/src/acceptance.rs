//! The long runs with real Envoys, which no other command starts.

use crate::{
    command::{cargo, run},
    failure::Failure,
    redis::Redis,
    tools,
};

pub(crate) const HELP: &str = "\
Find or install a Redis server and Envoy, then run the long scenarios of Envoy's two services, one at a time. They
take about ten minutes. Their figures are printed at the end: response times, resident memory, requests that passed
in each window, and the warnings of each Envoy.

Usage: cargo xtask acceptance [-- ARGS...]

Options:
  ARGS     For `cargo nextest run`, to pick scenarios by name, or `--release` to measure the optimized server

Environment:
  REDIS_SERVER_BIN  Start this binary, not the `redis-server` in PATH";

const ADVICE: &str =
    "see what failed above; `cargo xtask acceptance -- <name>` runs one scenario alone";

const LINE: [&str; 11] = [
    "nextest",
    "run",
    "-p",
    "ratelimit-server",
    "--features",
    "acceptance",
    "-E",
    "test(acceptance::)",
    "--success-output",
    "final",
    "--no-fail-fast",
];

/// Runs every scenario, with what it needs.
pub(crate) fn run_all(args: &[String]) -> Result<(), Failure> {
    let Some(extra) = extra(args) else {
        return Err(Failure::new(
            "unknown option",
            "see `cargo xtask acceptance --help`",
        ));
    };
    Redis::ensure_binary()?;
    tools::ensure_envoy()?;
    run(cargo(&LINE).args(extra), ADVICE)
}

/// The arguments after `--`; `None` if there are others before.
fn extra(args: &[String]) -> Option<&[String]> {
    match args {
        [] => Some(&[]),
        [first, rest @ ..] if first == "--" => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_follow_two_dashes() {
        let args = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };

        assert_eq!(extra(&[]), Some(&[][..]));
        assert_eq!(extra(&args("-- --release")), Some(&args("--release")[..]));
        assert_eq!(extra(&args("--release")), None);
    }
}
