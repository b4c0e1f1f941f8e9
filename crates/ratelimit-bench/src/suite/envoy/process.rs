//! The server under load.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::suite::cpu_time::cpu_time;

/// The rules of the descriptors, and the limit of the REST check. None of them is ever reached.
const RULES: &str = "
domain: bench
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 4000000000 } }
  - { key: path, rate_limit: { unit: hour, requests_per_unit: 4000000000 } }
  - { key: tenant, rate_limit: { unit: hour, requests_per_unit: 4000000000 } }
  - { key: remote_address, rate_limit: { unit: hour, requests_per_unit: 4000000000 } }
";
const LIMITS: &str = "bench=fixed_window 4000000000/h";
const BUCKETS: &str = "
[[envoy.bucket]]
domain = 'bench'
match = ['user']
limits = 'fixed_window 1000000/h'
";

/// A `ratelimit-server` of the same build, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    /// Its output, which stays open: a server that cannot write ends.
    _output: BufReader<ChildStdout>,
    /// The rules and the configuration, which the server reads again.
    _files: [TempDir; 2],
    pub(super) rest: SocketAddr,
    pub(super) envoy: SocketAddr,
}

impl ServerProcess {
    /// Starts the server with budgets in memory, or in a Redis.
    ///
    /// # Panics
    ///
    /// When it is not built, or does not start.
    pub(super) fn start(redis: Option<&str>) -> ServerProcess {
        let rules = TempDir::new().expect("a directory for the rules");
        fs::write(rules.path().join("bench.yaml"), RULES).expect("the rules are written");
        let config = TempDir::new().expect("a directory for the configuration");
        let file = config.path().join("server.toml");
        fs::write(&file, BUCKETS).expect("the configuration is written");
        let program = std::env::current_exe().expect("our own path");
        let mut command = Command::new(program.with_file_name("ratelimit-server"));
        command
            .args(["--listen", "127.0.0.1:0", "--envoy-listen", "127.0.0.1:0"])
            .args(["--policy", LIMITS, "--log", "error"])
            .arg("--envoy-config")
            .arg(rules.path())
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(url) = redis {
            command.args(["--redis", url, "--time-budget", "10s"]);
        }
        let mut child = command.spawn().expect("the server is built beside us");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut address = |label: &str| {
            let found = output.by_ref().lines().find_map(|line| {
                let line = line.ok()?;
                let rest = line.trim_start().strip_prefix(label)?.trim_start();
                let address = rest.trim_start_matches("http://");
                address.split(' ').next()?.parse().ok()
            });
            found.expect("the server tells its addresses")
        };
        let (rest, envoy) = (address("listening"), address("envoy"));
        ServerProcess {
            child,
            _output: output,
            _files: [rules, config],
            rest,
            envoy,
        }
    }

    /// The processor time of all threads so far.
    pub(super) fn cpu_time(&self) -> Duration {
        cpu_time(self.child.id())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
