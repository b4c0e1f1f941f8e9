//! A redis-server of our own on a free port.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::ports::free_port;

const BINARIES: [&str; 2] = ["redis-server", "valkey-server"];
const START_WITHIN: Duration = Duration::from_secs(20);

/// Runs the server given as its arguments, tells its process id, and ends it when we are gone: the
/// pipe that `read` waits on closes however a process dies.
const WATCHER: &str = r#""$@" & echo $!; read -r _; kill -9 $! 2>/dev/null"#;

/// A redis-server process that ends when this is dropped, or when this process does.
#[derive(Debug)]
pub struct RedisProcess {
    watcher: Child,
    pid: u32,
    port: u16,
    dir: TempDir,
    arguments: Vec<String>,
}

impl RedisProcess {
    /// Whether the binary is a Redis 6, which lacks some settings.
    ///
    /// # Panics
    ///
    /// When there is no server binary.
    pub fn is_before_7() -> bool {
        let version = Command::new(found_binary()).arg("--version").output();
        let text = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        text.is_ok_and(|text| text.contains("v=6."))
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
        let port_text = port.to_string();
        let mut arguments = vec!["--port", &port_text, "--bind", "127.0.0.1"];
        arguments.extend(["--save", "", "--appendonly", "no", "--logfile", "log"]);
        // Redis before 7 knows no such option, and has the command switched on.
        if !RedisProcess::is_before_7() {
            arguments.extend(["--enable-debug-command", "local"]);
        }
        arguments.extend(extra);
        RedisProcess::launch(port, &arguments)
    }

    /// Starts a sentinel that watches the server on the port `watched` as `mymaster`.
    ///
    /// # Panics
    ///
    /// When there is no server binary, or it does not start.
    pub fn sentinel(watched: u16, quorum: usize) -> RedisProcess {
        let port = free_port();
        let watch = format!(
            "port {port}\nbind 127.0.0.1\nlogfile log\n\
             sentinel monitor mymaster 127.0.0.1 {watched} {quorum}\n\
             sentinel down-after-milliseconds mymaster 1000\n\
             sentinel failover-timeout mymaster 3000\n"
        );
        let dir = TempDir::new().expect("a directory for the server");
        fs::write(dir.path().join("sentinel.conf"), watch).expect("a file for the sentinel");
        RedisProcess::launch_in(dir, port, &["sentinel.conf", "--sentinel"])
    }

    fn launch(port: u16, arguments: &[&str]) -> RedisProcess {
        let dir = TempDir::new().expect("a directory for the server");
        RedisProcess::launch_in(dir, port, arguments)
    }

    fn launch_in(dir: TempDir, port: u16, arguments: &[&str]) -> RedisProcess {
        let arguments: Vec<String> = arguments.iter().copied().map(str::to_owned).collect();
        let (watcher, pid) = spawn_watcher(&dir, &arguments);
        let server = RedisProcess {
            watcher,
            pid,
            port,
            dir,
            arguments,
        };
        server.wait_until_it_answers();
        server
    }

    /// Kills it, as with `kill -9`.
    pub fn kill(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }

    /// Starts it again where it was, after killing it if it still runs.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn restart(&mut self) {
        self.kill();
        (self.watcher, self.pid) = spawn_watcher(&self.dir, &self.arguments);
        self.wait_until_it_answers();
    }

    /// Runs one command on a connection of its own.
    ///
    /// # Errors
    ///
    /// When the server answers with an error, or not at all.
    pub fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_connection_with_timeout(START_WITHIN)?;
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut connection)
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
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
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
        self.kill();
    }
}

/// Starts a server and the shell that ends it with us.
fn spawn_watcher(dir: &TempDir, arguments: &[String]) -> (Child, u32) {
    let mut watcher = Command::new("sh")
        .args(["-c", WATCHER, "watcher", &found_binary()])
        .args(arguments)
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell starts");
    let stdout = watcher
        .stdout
        .take()
        .expect("the watcher's output is piped");
    let mut first_line = String::new();
    BufReader::new(stdout)
        .read_line(&mut first_line)
        .expect("the watcher tells the server's process id");
    let pid = first_line.trim().parse().expect("a process id");
    (watcher, pid)
}

/// The server binary to start: `REDIS_SERVER_BIN`, or the first known one on the path.
fn found_binary() -> String {
    if let Ok(chosen) = env::var("REDIS_SERVER_BIN") {
        return chosen;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = |name: &&str| env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let found = BINARIES.into_iter().find(on_path);
    found
        .expect("no redis-server here: run `cargo xtask test`, or set REDIS_SERVER_BIN")
        .to_owned()
}
