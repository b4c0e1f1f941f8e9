//! A redis-server of our own on a free port.

use std::{
    env,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

const BINARIES: [&str; 2] = ["redis-server", "valkey-server"];
const START_WITHIN: Duration = Duration::from_secs(20);

/// Runs the server given as its arguments, tells its process id, and ends it when we are gone: the
/// pipe that `read` waits on closes however a process dies.
const KEEPER: &str = r#""$@" & echo $!; read -r _; kill -9 $! 2>/dev/null"#;

/// A redis-server process that ends when this is dropped, or when this process does.
#[derive(Debug)]
pub struct RedisProcess {
    keeper: Child,
    pid: u32,
    port: u16,
    dir: TempDir,
}

impl RedisProcess {
    /// The server binary to start: `REDIS_SERVER_BIN`, or the first known one on the path.
    pub fn binary() -> Option<String> {
        if let Ok(chosen) = env::var("REDIS_SERVER_BIN") {
            return Some(chosen);
        }
        let path = env::var_os("PATH")?;
        let on_path = |name: &&str| env::split_paths(&path).any(|dir| dir.join(name).is_file());
        BINARIES.into_iter().find(on_path).map(str::to_owned)
    }

    /// Starts a server with nothing persisted and the given further arguments.
    ///
    /// # Panics
    ///
    /// When there is no server binary, or it does not start.
    pub fn start(extra: &[&str]) -> RedisProcess {
        let port = free_port();
        RedisProcess::start_on(port, extra)
    }

    /// Starts a server on `port`.
    ///
    /// # Panics
    ///
    /// When there is no server binary, or it does not start.
    pub fn start_on(port: u16, extra: &[&str]) -> RedisProcess {
        let binary = RedisProcess::binary()
            .expect("no redis-server here: run `cargo xtask test`, or set REDIS_SERVER_BIN");
        let dir = TempDir::new().expect("a directory for the server");
        let port_text = port.to_string();
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper", &binary])
            .args(["--port", &port_text, "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--logfile", "log"])
            .args(
                ["--enable-debug-command", "local"]
                    .iter()
                    .take(debug_arguments(&binary)),
            )
            .arg("--dir")
            .arg(dir.path())
            .args(extra)
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let stdout = keeper.stdout.take().expect("the keeper's output is piped");
        let mut first_line = String::new();
        BufReader::new(stdout)
            .read_line(&mut first_line)
            .expect("the keeper tells the server's process id");
        let pid = first_line.trim().parse().expect("a process id");
        let server = RedisProcess {
            keeper,
            pid,
            port,
            dir,
        };
        server.wait_until_it_answers();
        server
    }

    /// Its port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its process id.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its working directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Sends it a signal, as in `signal("STOP")`.
    ///
    /// # Panics
    ///
    /// When there is no such process any more.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &self.pid.to_string()])
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{signal}");
    }

    fn wait_until_it_answers(&self) {
        let started = Instant::now();
        while started.elapsed() < START_WITHIN {
            if self.is_ours() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        panic!(
            "the redis-server on port {} did not start:\n{log}",
            self.port
        );
    }

    /// Whether the server that answers is this one, and not another that took the port.
    fn is_ours(&self) -> bool {
        let Ok(client) = redis::Client::open(self.url()) else {
            return false;
        };
        let Ok(mut connection) = client.get_connection_with_timeout(START_WITHIN) else {
            return false;
        };
        match redis::cmd("CONFIG")
            .arg("GET")
            .arg("dir")
            .query(&mut connection)
        {
            Ok(pair) => {
                let [_, dir]: [String; 2] = pair;
                Path::new(&dir).file_name() == self.dir.path().file_name()
            }
            // A server that asks for a password or is busy loading has started as well.
            Err(error) => error.code().is_some_and(|code| code != "LOADING"),
        }
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Redis before 7 knows no such option, and has the command switched on.
fn debug_arguments(binary: &str) -> usize {
    let version = Command::new(binary).arg("--version").output();
    let text = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if text.is_ok_and(|text| text.contains("v=6.")) {
        0
    } else {
        2
    }
}

/// A port that was free a moment ago.
///
/// # Panics
///
/// When there is none.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound port").port()
}
