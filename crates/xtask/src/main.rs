//! The chores of this repository: `cargo xtask test` and `cargo xtask check`.

mod acceptance;
mod bench;
mod book;
mod check;
mod command;
mod failure;
mod files;
mod install;
mod proto;
mod redis;
mod servers;
mod test;
mod tools;
mod workspace;

use std::{env, process::ExitCode};

const HELP: &str = "\
The chores of this repository.

Usage: cargo xtask <COMMAND>

Commands:
  test        Find or install a Redis server, then run every test
  check       Run every check that needs no server
  acceptance  Run the long scenarios with real Envoys
  servers     Run the engine's tests on every server version that we promise
  bench       Measure what a decision costs, beside other limiters
  gate        Count instructions and allocations, and compare them with their budgets
  proto       Generate Rust code from the messages of Envoy
  book        Build the pages of docs as a book, and check its links

`cargo xtask <COMMAND> --help` says more.";

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let wants_help = rest
        .iter()
        .take_while(|arg| *arg != "--")
        .any(|arg| arg == "--help" || arg == "-h");

    let outcome = match command.as_str() {
        "test" if wants_help => return say(test::HELP),
        "check" if wants_help => return say(&check::help()),
        "acceptance" if wants_help => return say(acceptance::HELP),
        "acceptance" => acceptance::run_all(&rest),
        "servers" if wants_help => return say(servers::HELP),
        "servers" => servers::run_all(),
        "bench" if wants_help => return say(bench::HELP),
        "bench" => bench::run_bench(&rest),
        "gate" if wants_help => return say(bench::GATE_HELP),
        "gate" => bench::run_gate(&rest),
        "book" if wants_help => return say(book::HELP),
        "book" => book::build(),
        "proto" if wants_help => return say(proto::HELP),
        "proto" => proto::write(),
        "test" => test::run(&rest),
        "check" => check::run(&rest),
        "help" | "--help" | "-h" => return say(HELP),
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) -> ExitCode {
    println!("{text}");
    ExitCode::SUCCESS
}
