//! The benchmark, and the gate that keeps counts where they are.

use std::path::PathBuf;

use crate::{
    command::{cargo, run},
    failure::Failure,
    redis::Redis,
    tools::{self, Profile},
    workspace::Workspace,
};

pub(crate) const HELP: &str = "\
Measure what a decision costs, beside other limiters, and write the numbers, the charts and the tables of
docs/explain/performance.md. Takes about 10 minutes once it is built.
The first run installs throttlecrab-server into target/tools, unless --quick or --only leave it out.

Usage: cargo xtask bench [--quick] [--out DIR] [--only WORD]
       cargo xtask bench --redraw

Options:
  --quick      Fewer and shorter rounds, without the slow suites, in less than 2 minutes; writes to target/bench
  --out DIR    Write there, and leave docs/explain/performance.md as it is
  --only WORD  Only the measurements whose names hold WORD; writes nothing unless --out is given
  --redraw     Measure nothing: draw the charts and write the tables from docs/bench/bench.json";

pub(crate) const GATE_HELP: &str = "\
Count the instructions and allocations of decisions, and compare them with crates/ratelimit-bench/budget.toml.

Usage: cargo xtask gate [--write]

Options:
  --write  Write a budget 5 % above what was counted";

/// The version of the server that `rest` compares with.
const THROTTLECRAB: &str = "0.4.40";

const ADVICE: &str = "see what failed above";

/// Builds the benchmark with its peers, and runs it.
pub(crate) fn run_bench(args: &[String]) -> Result<(), Failure> {
    if args.iter().any(|arg| arg == "--redraw") {
        return redraw(args);
    }
    let bins = "--bin bench --bin instructions_peers --bin instructions_local --bin memory_usage --features ratelimit-bench/peers -p ratelimit-server --bin ratelimit-server";
    let peer = if runs_rest(args) {
        tools::ensure_one("wrk")?;
        tools::ensure_protoc()?;
        let target = Workspace::members()?.root.join("target");
        let peer = tools::ensure_crate(
            &target,
            "throttlecrab-server",
            THROTTLECRAB,
            Profile::Release,
        )?;
        Some(("THROTTLECRAB_SERVER_BIN", peer))
    } else {
        None
    };
    start("bench", bins, args, peer)
}

/// Whether the suite `rest` is measured, whose peer takes minutes to install.
fn runs_rest(args: &[String]) -> bool {
    let only = args.iter().skip_while(|arg| *arg != "--only").nth(1);
    match only {
        Some(word) => "rest".contains(word.as_str()),
        None => args.iter().all(|arg| arg != "--quick"),
    }
}

/// Draws the charts and writes the tables from the numbers of the last run.
fn redraw(args: &[String]) -> Result<(), Failure> {
    if args.len() > 1 {
        return Err(Failure::new(
            "--redraw stands alone",
            "see `cargo xtask bench --help`",
        ));
    }
    let run_redraw = ["run", "-q", "-p", "ratelimit-bench", "--bin", "redraw"];
    let mut program = cargo(&run_redraw);
    program.current_dir(Workspace::members()?.root);
    run(&mut program, ADVICE)
}

/// Builds and runs the gate.
pub(crate) fn run_gate(args: &[String]) -> Result<(), Failure> {
    if args.iter().any(|arg| arg != "--write") {
        return Err(Failure::new(
            "unknown option",
            "see `cargo xtask gate --help`",
        ));
    }
    // The server of the dev profile, which tests have built: a release build takes minutes.
    let build = "build -q -p ratelimit-server --bin ratelimit-server";
    let build: Vec<&str> = build.split(' ').collect();
    run(&mut cargo(&build), "fix what does not compile")?;
    start("gate", "--bin gate --bin instructions", args, None)
}

fn start(
    program: &str,
    bins: &str,
    args: &[String],
    variable: Option<(&str, PathBuf)>,
) -> Result<(), Failure> {
    tools::ensure_one("valgrind")?;
    let server = Redis::ensure_binary()?;
    let build = format!("build --release -q -p ratelimit-bench {bins}");
    let build: Vec<&str> = build.split(' ').collect();
    run(&mut cargo(&build), "fix what does not compile")?;

    let mut program = std::process::Command::new(release_folder()?.join(program));
    program.args(args).env("REDIS_SERVER_BIN", server);
    program.envs(variable);
    program.current_dir(Workspace::members()?.root);
    run(&mut program, ADVICE)
}

/// Where cargo leaves what it builds for release.
pub(crate) fn release_folder() -> Result<PathBuf, Failure> {
    Ok(Workspace::members()?.target_directory.join("release"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_installed_only_for_its_suite() {
        let runs = |line: &str| runs_rest(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());

        for line in [
            "",
            "--only rest",
            "--quick --only rest",
            "--only es --out x",
        ] {
            assert!(runs(line), "{line}");
        }
        for line in ["--quick", "--only http", "--quick --out rest"] {
            assert!(!runs(line), "{line}");
        }
    }
}
