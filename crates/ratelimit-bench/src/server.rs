//! A redis-server of our own on a free port.

use std::{
    env,
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

const BINARIES: [&str; 2] = ["redis-server", "valkey-server"];
const START_WITHIN: Duration = Duration::from_secs(30);

/// Runs its arguments as a server, and ends it when we are gone: the pipe that `read` waits on closes
/// however a process dies.
const WATCHER: &str = r#""$@" >/dev/null 2>&1 & echo $! >pid; read -r _; kill -9 $! 2>/dev/null"#;

/// A redis-server that persists nothing, and ends when this is dropped.
#[derive(Debug)]
pub struct RedisServer {
    watcher: Child,
    port: u16,
    dir: TempDir,
}

impl RedisServer {
    /// Starts a server with the given further arguments.
    ///
    /// # Panics
    ///
    /// When there is no server binary, or it does not start.
    pub fn start(extra: &[&str]) -> RedisServer {
        RedisServer::start_under(&[], extra)
    }

    /// Starts a server by `launcher`, a program and its arguments that take the server's after them.
    ///
    /// # Panics
    ///
    /// When there is no server binary, or it does not start.
    pub fn start_under(launcher: &[String], extra: &[&str]) -> RedisServer {
        let dir = TempDir::new().expect("a directory for the server");
        let port = free_port();
        let watcher = Command::new("sh")
            .args(["-c", WATCHER, "watcher"])
            .args(launcher)
            .arg(binary())
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--io-threads", "1"])
            .args(extra)
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let server = RedisServer { watcher, port, dir };
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
    ///
    /// # Panics
    ///
    /// When the shell that started it did not write it down.
    pub fn pid(&self) -> u32 {
        let text = std::fs::read_to_string(self.dir.path().join("pid"));
        let text = text.expect("the watcher writes the server's process id");
        text.trim().parse().expect("a process id")
    }

    /// Its working directory.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Runs one command on a connection of its own.
    ///
    /// # Panics
    ///
    /// When the server refuses it, or does not answer.
    pub fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let answer = self.try_ask(words);
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// A field of its `INFO`.
    ///
    /// # Panics
    ///
    /// When there is no such field.
    pub fn info(&self, section: &str, field: &str) -> String {
        let info: String = self.ask(&["INFO", section]);
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(name, _)| *name == field);
        found.expect("a field that every server tells").1.to_owned()
    }

    /// Its version: `7.0.15`.
    pub fn version(&self) -> String {
        self.info("server", "redis_version")
    }

    fn try_ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_connection_with_timeout(START_WITHIN)?;
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut connection)
    }

    fn wait_until_it_answers(&self) {
        let started = Instant::now();
        while started.elapsed() < START_WITHIN {
            if self.try_ask::<String>(&["PING"]).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the redis-server on port {} did not start", self.port);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

fn binary() -> String {
    if let Ok(chosen) = env::var("REDIS_SERVER_BIN") {
        return chosen;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = |name: &&str| env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let found = BINARIES.into_iter().find(on_path);
    found
        .expect("no redis-server here: `cargo xtask bench` and `cargo xtask gate` install one")
        .to_owned()
}

/// A free port, chosen by the system.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}
