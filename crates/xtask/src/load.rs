//! The server under load, beside the same framework with an empty handler.

use std::{
    fmt,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::{
    bench::release_folder,
    command::{cargo, output, run},
    failure::Failure,
    tools,
};

pub(crate) const HELP: &str = "\
Build the server for release, and drive it and an axum server with an empty handler in turn,
for 30 seconds in all. Prints requests a second, the 99th percentile, and answers that were no success.

Usage: cargo xtask load";

const ADVICE: &str = "see that nothing else keeps the machine busy, and try again";

/// Rounds for each of the two, in turn, so that both meet the same machine.
const ROUNDS: usize = 3;

const SECONDS: u32 = 5;

const CONNECTIONS: u32 = 64;

/// A budget that is never used up, so that every answer is a success.
const POLICY: &str = "load=token_bucket 1000000/ms";

const CHECK: &str = "/api/v1/rate-limit/check?policy=load&key=user:123";

/// Runs both, and prints what each came to.
pub(crate) fn run_all() -> Result<(), Failure> {
    tools::ensure_one("wrk")?;
    let build =
        "build --release -p ratelimit-server --bin ratelimit-server --example empty_handler";
    let build: Vec<&str> = build.split(' ').collect();
    run(&mut cargo(&build), "mend what does not compile")?;
    let release = release_folder()?;

    let empty = Running::start(&release.join("examples/empty_handler"), &[])?;
    let settings = ["--listen", "127.0.0.1:0", "--policy", POLICY];
    let server = Running::start(&release.join("ratelimit-server"), &settings)?;
    let (mut of_empty, mut of_server) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_empty.push(empty.drive("/")?);
        of_server.push(server.drive(CHECK)?);
    }

    let (empty, server) = (Figures::median(of_empty), Figures::median(of_server));
    println!("an empty handler  {empty}");
    println!("checks            {server}");
    let percent = server.per_second * 100 / empty.per_second.max(1);
    println!("checks are {percent} % of the empty handler's requests");
    Ok(())
}

/// A server that ends when this is dropped.
struct Running {
    child: Child,
    /// Kept open: a server whose standard output is closed would end.
    stdout: BufReader<ChildStdout>,
    url: String,
}

impl Running {
    fn start(program: &Path, args: &[&str]) -> Result<Running, Failure> {
        let failed = |why: &str| Failure::new(format!("{}: {why}", program.display()), ADVICE);
        let mut command = Command::new(program);
        command.args(args).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|why| failed(&why.to_string()))?;
        let stdout = child.stdout.take().expect("it is piped");
        let mut running = Running {
            child,
            stdout: BufReader::new(stdout),
            url: String::new(),
        };
        running.url = running
            .find_url()
            .ok_or_else(|| failed("it does not listen"))?;
        Ok(running)
    }

    fn find_url(&mut self) -> Option<String> {
        let mut line = String::new();
        while self
            .stdout
            .read_line(&mut line)
            .is_ok_and(|length| length > 0)
        {
            if let Some((_, url)) = line.split_once("listening  ") {
                return Some(url.trim().to_owned());
            }
            line.clear();
        }
        None
    }

    fn drive(&self, path: &str) -> Result<Figures, Failure> {
        let mut wrk = Command::new("wrk");
        wrk.arg("--latency").args(["-t", "2"]);
        wrk.args(["-c", &CONNECTIONS.to_string()]);
        wrk.args(["-d", &format!("{SECONDS}s")]);
        wrk.arg(format!("{}{path}", self.url));
        let printed = output(&mut wrk, ADVICE)?;
        let printed = String::from_utf8_lossy(&printed);
        Figures::read(&printed)
            .ok_or_else(|| Failure::new(format!("not understood:\n{printed}"), ADVICE))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of one round.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Figures {
    per_second: u64,
    p99: String,
    /// Responses other than a success, and connections that broke.
    failures: u64,
}

impl Figures {
    /// Reads what wrk prints.
    fn read(printed: &str) -> Option<Figures> {
        let after = |label: &str| {
            let mut lines = printed.lines().map(str::trim);
            lines.find_map(|line| line.strip_prefix(label).map(str::trim))
        };
        let per_second = after("Requests/sec:")?.split('.').next()?.parse().ok()?;
        let refused = match after("Non-2xx or 3xx responses:") {
            Some(count) => count.parse().ok()?,
            None => 0,
        };
        let broken = after("Socket errors:").unwrap_or_default();
        let broken = broken
            .split([' ', ','])
            .filter_map(|word| word.parse::<u64>().ok());
        Some(Figures {
            per_second,
            p99: after("99%")?.to_owned(),
            failures: refused + broken.sum::<u64>(),
        })
    }

    /// The round in the middle, with the failures of all.
    fn median(mut rounds: Vec<Figures>) -> Figures {
        rounds.sort_by_key(|figures| figures.per_second);
        let failures = rounds.iter().map(|figures| figures.failures).sum();
        let middle = rounds.swap_remove(rounds.len() / 2);
        Figures { failures, ..middle }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures {
            per_second,
            p99,
            failures,
        } = self;
        write!(f, "{per_second} requests/s, p99 {p99}, {failures} failures")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "  Latency Distribution\n     50%    1.10ms\n     99%    4.20ms\n  \
        9000 requests in 5.00s, 1.00MB read\n  Socket errors: connect 0, read 2, write 0, timeout 1\n  \
        Non-2xx or 3xx responses: 4\nRequests/sec:   1800.55\nTransfer/sec:    200.00KB\n";

    #[test]
    fn the_output_of_wrk_is_parsed() {
        let figures = Figures::read(TOLD).unwrap();

        assert_eq!(
            figures.to_string(),
            "1800 requests/s, p99 4.20ms, 7 failures"
        );
        assert_eq!(Figures::read("unable to connect"), None);
    }

    #[test]
    fn the_middle_round_stands_for_all_and_no_failure_is_lost() {
        let round = |per_second, failures| Figures {
            per_second,
            p99: format!("{per_second}us"),
            failures,
        };

        let median = Figures::median(vec![round(30, 1), round(10, 0), round(20, 2)]);

        assert_eq!(
            median,
            Figures {
                failures: 3,
                ..round(20, 0)
            }
        );
    }
}
