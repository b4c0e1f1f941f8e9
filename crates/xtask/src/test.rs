//! Every test of the workspace.

use crate::{
    command::{self, cargo, succeeds},
    failure::Failure,
    redis::Redis,
    tools,
    workspace::Workspace,
};

pub(crate) const HELP: &str = "\
Find or install a Redis server, curl, three proxies, Prometheus and a browser, then run every test, doctests included.

Usage: cargo xtask test [--fast] [-- ARGS...]

Options:
  --fast   Leave out the chaos suite, which breaks servers and takes minutes
  ARGS     For `cargo nextest run`, or `cargo test` where nextest is missing, to pick
           tests; doctests are then not run on their own

Environment:
  RATELIMIT_TEST_REDIS_URL  Use the server at this address
  REDIS_SERVER_BIN          Start this binary, not the `redis-server` in PATH";

const ADVICE: &str = "fix the failing test; `cargo xtask test -- <name>` runs one";

/// The target that `--fast` leaves out.
const CHAOS: &str = "chaos";

/// Runs every test, with a Redis to run against.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let (options, extra) = match args.iter().position(|arg| arg == "--") {
        Some(split) => (&args[..split], &args[split + 1..]),
        None => (args, &[][..]),
    };
    let scope = match options {
        [] => Scope::Everything,
        [option] if option == "--fast" => Scope::Fast,
        _ => {
            return Err(Failure::new(
                "unknown option",
                "see `cargo xtask test --help`",
            ));
        }
    };

    let redis = Redis::ensure()?;
    tools::ensure()?;
    println!("{redis}");
    let workspace = Workspace::members()?;
    let (suites, features) = (workspace.test_targets(), workspace.features());
    for line in Runner::find().lines(scope, &suites, &features, extra) {
        println!("==> cargo {}", line.join(" "));
        command::run(&mut cargo(&line), ADVICE)?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Everything,
    Fast,
}

#[derive(Debug)]
enum Runner {
    Nextest,
    Cargo,
}

impl Runner {
    fn find() -> Runner {
        if succeeds(&mut cargo(&["nextest", "--version"])) {
            Runner::Nextest
        } else {
            Runner::Cargo
        }
    }

    /// The arguments of each cargo call; `suites` are the workspace's integration tests.
    fn lines(
        &self,
        scope: Scope,
        suites: &[String],
        features: &str,
        extra: &[String],
    ) -> Vec<Vec<String>> {
        let mut tests = words(match self {
            Runner::Nextest => "nextest run --workspace",
            Runner::Cargo => "test --workspace",
        });
        tests.extend(["--features".to_owned(), features.to_owned()]);
        let has_chaos = suites.iter().any(|suite| suite == CHAOS);
        match self {
            Runner::Nextest if scope == Scope::Fast && has_chaos => {
                tests.extend(["-E".to_owned(), format!("not binary(={CHAOS})")]);
            }
            // Cargo can name the suites to run, but none to leave out.
            Runner::Cargo if scope == Scope::Fast => {
                tests.extend(words("--lib --bins --examples"));
                for suite in suites.iter().filter(|suite| *suite != CHAOS) {
                    tests.extend(["--test".to_owned(), suite.clone()]);
                }
            }
            Runner::Cargo if extra.is_empty() => {
                tests.extend(words("--lib --bins --examples --tests"));
            }
            Runner::Nextest | Runner::Cargo => {}
        }
        if extra.is_empty() {
            let doctests = format!("test --workspace --features {features} --doc");
            return vec![tests, words(&doctests)];
        }
        tests.extend(extra.iter().cloned());
        vec![tests]
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(runner: &Runner, scope: Scope, extra: &str) -> Vec<String> {
        let extra: Vec<String> = extra.split_whitespace().map(str::to_owned).collect();
        let lines = runner.lines(scope, &words("chaos stores"), "core/redis", &extra);
        lines.iter().map(|line| line.join(" ")).collect()
    }

    #[test]
    fn fast_leaves_out_chaos_and_nothing_else() {
        let nextest = lines(&Runner::Nextest, Scope::Fast, "");
        let cargo = lines(&Runner::Cargo, Scope::Fast, "");

        assert!(nextest[0].ends_with("-E not binary(=chaos)"));
        assert!(cargo[0].ends_with("--lib --bins --examples --test stores"));
    }

    #[test]
    fn doctests_run_unless_tests_are_picked() {
        let doctests = "test --workspace --features core/redis --doc";

        assert_eq!(lines(&Runner::Nextest, Scope::Everything, "")[1], doctests);
        assert_eq!(lines(&Runner::Cargo, Scope::Fast, "")[1], doctests);
        assert_eq!(
            lines(&Runner::Cargo, Scope::Everything, "token_bucket"),
            ["test --workspace --features core/redis token_bucket"]
        );
    }
}
