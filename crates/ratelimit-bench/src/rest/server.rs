//! The compared servers.

use std::{
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    callgrind::{Dumps, LAUNCHER},
    server::free_port,
};

/// Longer than a server takes to start under callgrind.
const START_WITHIN: Duration = Duration::from_secs(60);

/// A server, and how a check is posted to it. The budgets of both are equal, and never used up.
pub(crate) struct RestProgram {
    pub(crate) name: &'static str,
    pub(crate) file: PathBuf,
    pub(crate) args: &'static [&'static str],
    /// The option for the address, or for the port alone.
    pub(crate) listen: fn(SocketAddr) -> [String; 2],
    pub(crate) path: &'static str,
    /// The members of the body beside `key`.
    pub(crate) members: &'static str,
}

impl RestProgram {
    /// `ratelimit-server` at a path.
    pub(crate) fn ours(file: PathBuf) -> RestProgram {
        RestProgram {
            name: "ratelimit-server",
            file,
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
}

/// A server of one program on a free port, which ends when this is dropped.
pub(crate) struct RestServer {
    child: Child,
    pub(crate) addr: SocketAddr,
    pub(crate) path: &'static str,
    pub(crate) members: &'static str,
    dir: TempDir,
    dumps: Dumps,
}

impl RestServer {
    #[cfg(feature = "peers")]
    pub(crate) fn start(program: &RestProgram) -> RestServer {
        RestServer::start_by(Command::new(&program.file), program)
    }

    /// Starts a server whose instructions are counted. It has one thread for requests: two would wake each other by chance.
    pub(crate) fn start_counted(program: &RestProgram) -> RestServer {
        let [valgrind, options @ ..] = LAUNCHER;
        let mut command = Command::new(valgrind);
        command.args(options).arg(&program.file);
        command.env("TOKIO_WORKER_THREADS", "1");
        RestServer::start_by(command, program)
    }

    fn start_by(mut command: Command, program: &RestProgram) -> RestServer {
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let dir = TempDir::new().expect("a directory for the server");
        let child = command
            .args(program.args)
            .args((program.listen)(addr))
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|why| panic!("{} does not start: {why}", program.name));
        let server = RestServer {
            child,
            addr,
            path: program.path,
            members: program.members,
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

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The instructions since the last call, of a server that is counted.
    pub(crate) fn instructions(&mut self) -> u64 {
        self.dumps.take(self.pid(), self.dir.path())
    }
}

impl Drop for RestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
