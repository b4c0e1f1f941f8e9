//! The engine's tests on every server version that we promise.

use std::{path::Path, process::Command};

use crate::{
    command::{cargo, output, run},
    failure::Failure,
    workspace::Workspace,
};

pub(crate) const HELP: &str = "\
Run the engine's tests on Redis 6.2, 7.0, 8.0 and Valkey 9, and print which versions passed: on one
server, and as the documented users on one server, behind a sentinel and on a cluster.

Usage: cargo xtask servers

Fetches the versions that the system does not have into target/servers (Debian 12 only).";

const FETCH: &str = include_str!("servers.sh");
const FETCHED: [&str; 3] = ["redis-6.2", "redis-8.0", "valkey-9"];
const ADVICE: &str =
    "see what failed above; `REDIS_SERVER_BIN=... cargo nextest run -p ratelimit-tests` repeats it";

pub(crate) fn run_all() -> Result<(), Failure> {
    let directory = Workspace::members()?.root.join("target/servers");
    let mut fetch = Command::new("sh");
    fetch.args(["-c", FETCH, "servers"]).arg(&directory);
    run(
        &mut fetch,
        "this needs Debian 12, apt-get and python3 with pip",
    )?;

    let fetched = FETCHED.map(|name| directory.join(name).join("run"));
    let system = Path::new("redis-server").to_path_buf();
    let mut rows = Vec::new();
    for binary in [system].iter().chain(&fetched) {
        let version = version_of(binary)?;
        let mut tests = cargo(&[
            "nextest",
            "run",
            "-p",
            "ratelimit-tests",
            "--test",
            "engine",
        ]);
        tests.args(["-E", "not test(memory_capacity)"]);
        tests.env("REDIS_SERVER_BIN", binary);
        run(&mut tests, ADVICE)?;
        rows.push(format!("| {version} | passed |"));
    }
    println!("| server | engine suite |\n|---|---|\n{}", rows.join("\n"));
    Ok(())
}

/// `Redis 7.0.15`, from `Redis server v=7.0.15 sha=...`.
fn version_of(binary: &Path) -> Result<String, Failure> {
    let printed = output(Command::new(binary).arg("--version"), ADVICE)?;
    let printed = String::from_utf8_lossy(&printed).into_owned();
    let mut words = printed.split_whitespace();
    let name = words.next().unwrap_or("?");
    let version = words.find_map(|word| word.strip_prefix("v="));
    Ok(format!("{name} {}", version.unwrap_or("?")))
}
