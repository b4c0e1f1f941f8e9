//! The compared servers.

use std::{
    env,
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    callgrind::{Dumps, LAUNCHER, exact},
    server::free_port,
    suite::cpu_time::cpu_time,
};

/// Longer than a server takes to start under callgrind.
const START_WITHIN: Duration = Duration::from_secs(60);

/// The variable with the path of the peer, which `cargo xtask bench` sets.
const THROTTLECRAB: &str = "THROTTLECRAB_SERVER_BIN";

/// A server, and how a check is posted to it. The budgets of both are equal, and never used up.
pub(super) struct Contender {
    pub(super) name: &'static str,
    program: PathBuf,
    args: &'static [&'static str],
    /// The option that takes the address, or the port alone.
    listen: fn(SocketAddr) -> [String; 2],
    path: &'static str,
    /// The members of the body beside `key`.
    members: &'static str,
}

impl Contender {
    /// The server that is built beside us.
    pub(super) fn ours() -> Contender {
        let beside_us = env::current_exe().expect("our own path");
        Contender {
            name: "ratelimit-server",
            program: beside_us.with_file_name("ratelimit-server"),
            args: &[
                "--policy",
                "bench=token_bucket 1000000/s burst 100000000",
                "--log",
                "error",
            ],
            listen: |addr| ["--listen".to_owned(), addr.to_string()],
            path: "/api/v1/rate-limit/check",
            members: r#""policy":"bench""#,
        }
    }

    /// The peer, where it is installed.
    pub(super) fn throttlecrab() -> Option<Contender> {
        let program = PathBuf::from(env::var_os(THROTTLECRAB)?);
        program.is_file().then_some(Contender {
            name: "throttlecrab-server",
            program,
            args: &["--http", "--http-host", "127.0.0.1", "--log-level", "error"],
            listen: |addr| ["--http-port".to_owned(), addr.port().to_string()],
            path: "/throttle",
            members: r#""max_burst":100000000,"count_per_period":1000000,"period":1"#,
        })
    }
}

/// A server of one contender on a free port, which ends when this is dropped.
pub(super) struct RestServer {
    child: Child,
    pub(super) addr: SocketAddr,
    pub(super) path: &'static str,
    pub(super) members: &'static str,
    dir: TempDir,
    dumps: Dumps,
}

impl RestServer {
    pub(super) fn start(contender: &Contender) -> RestServer {
        RestServer::start_by(Command::new(&contender.program), contender)
    }

    /// Starts a server whose instructions are counted. It has one thread for requests: two would wake each other by chance.
    pub(super) fn start_counted(contender: &Contender) -> RestServer {
        let [valgrind, options @ ..] = LAUNCHER;
        let mut command = Command::new(valgrind);
        command.args(options).arg(&contender.program);
        command.env("TOKIO_WORKER_THREADS", "1");
        RestServer::start_by(command, contender)
    }

    fn start_by(mut command: Command, contender: &Contender) -> RestServer {
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let dir = TempDir::new().expect("a directory for the server");
        let child = command
            .args(contender.args)
            .args((contender.listen)(addr))
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|why| panic!("{} does not start: {why}", contender.name));
        let server = RestServer {
            child,
            addr,
            path: contender.path,
            members: contender.members,
            dir,
            dumps: Dumps::default(),
        };
        server.wait_until_it_listens();
        server
    }

    fn wait_until_it_listens(&self) {
        let started = Instant::now();
        while TcpStream::connect(self.addr).is_err() {
            let elapsed = started.elapsed();
            assert!(elapsed < START_WITHIN, "no server on {}", self.addr);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The processor time of all threads so far.
    pub(super) fn cpu_time(&self) -> Duration {
        cpu_time(self.child.id())
    }

    /// The instructions since the last call, of a server that is counted.
    pub(super) fn instructions(&mut self) -> f64 {
        exact(self.dumps.take(self.child.id(), self.dir.path()))
    }
}

impl Drop for RestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
