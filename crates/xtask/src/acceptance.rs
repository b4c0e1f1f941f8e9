//! What takes too long for every change: long runs with real Envoys, each feature alone, the oldest Rust, and packages.

use std::process::Command;

use crate::{
    check::{PACKAGE_ADVICE, package_command},
    command::{cargo, run, succeeds},
    failure::Failure,
    redis::Redis,
    tools::{self, Profile},
    workspace::Workspace,
};

pub(crate) const HELP: &str = "\
Run what takes too long for every change:

- the long scenarios of Envoy's two services, one at a time, about ten minutes. Their figures are printed at the end:
  response times, resident memory, requests that passed in each window, and the warnings of each Envoy.
- `cargo hack --each-feature` on the published crates
- a build with the oldest Rust that the manifests allow, if rustup has it
- `cargo package` with a build of each package from its archive

Usage: cargo xtask acceptance [-- ARGS...]

Options:
  ARGS     Run the scenarios only. For `cargo nextest run`, to pick them by name, or `--release` to measure the optimized
           server

Environment:
  REDIS_SERVER_BIN  Start this binary, not the `redis-server` in PATH";

const HACK: (&str, &str) = ("cargo-hack", "0.6.46");

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

/// Installs what is missing, and runs everything, or the scenarios that `args` pick.
pub(crate) fn run_all(args: &[String]) -> Result<(), Failure> {
    let Some(extra) = extra(args) else {
        return Err(Failure::new(
            "unknown option",
            "see `cargo xtask acceptance --help`",
        ));
    };
    Redis::ensure_binary()?;
    tools::ensure_envoy()?;
    run(cargo(&LINE).args(extra), ADVICE)?;
    if !extra.is_empty() {
        return Ok(());
    }
    let workspace = Workspace::members()?;
    check_each_feature(&workspace)?;
    check_oldest_rust(&workspace)?;
    println!("==> the packages compile");
    run(&mut package_command(&workspace), PACKAGE_ADVICE)
}

fn check_each_feature(workspace: &Workspace) -> Result<(), Failure> {
    println!("==> each feature compiles alone");
    let (name, version) = HACK;
    let target = &workspace.target_directory;
    let mut hack = Command::new(tools::ensure_crate(target, name, version, Profile::Debug)?);
    hack.current_dir(&workspace.root);
    hack.args(["hack", "check", "--each-feature", "--no-dev-deps"]);
    hack.args(packages(workspace));
    run(
        hack.env("RUSTFLAGS", "-D warnings"),
        "see which `cfg` is missing; --each-feature also leaves out all of them",
    )
}

/// Other Rust versions than the installed one are tested only where rustup has them.
fn check_oldest_rust(workspace: &Workspace) -> Result<(), Failure> {
    let version = workspace.rust_version();
    println!("==> the published crates compile with Rust {version}");
    let rustup = |args: &[&str]| {
        let mut rustup = Command::new("rustup");
        rustup.args(["run", version]).args(args);
        rustup
    };
    if !succeeds(&mut rustup(&["cargo", "--version"])) {
        println!("    not checked: `rustup toolchain install {version}` installs it");
        return Ok(());
    }
    let mut check = rustup(&["cargo", "check", "--all-features"]);
    run(
        check.args(packages(workspace)),
        "write what the old compiler understands, or raise rust-version",
    )
}

/// `-p NAME` for each published crate.
fn packages(workspace: &Workspace) -> impl Iterator<Item = &str> {
    let published = workspace.published();
    published.flat_map(|package| ["-p", package.name.as_str()])
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
