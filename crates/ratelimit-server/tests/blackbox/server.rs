//! A server process, and a client for it.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use axum::body::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const CHECK: &str = "/api/v1/rate-limit/check";
pub(crate) const REMAINING: &str = "/api/v1/rate-limit/remaining";
pub(crate) const RESET: &str = "/api/v1/rate-limit/reset";
pub(crate) const EXPLAIN: &str = "/api/v1/rate-limit/explain";
pub(crate) const OFFENDERS: &str = "/api/v1/rate-limit/offenders";
pub(crate) const REFUND: &str = "/api/v1/rate-limit/refund";
pub(crate) const SETTLE: &str = "/api/v1/rate-limit/settle";
pub(crate) const RELEASE: &str = "/api/v1/rate-limit/release";
pub(crate) const RENEW: &str = "/api/v1/rate-limit/renew";

/// Longer than the slowest machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The built binary, without settings from this process's environment.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimit-server"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RATELIMIT_") {
            command.env_remove(name);
        }
    }
    command
}

/// A server that runs until this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) addr: SocketAddr,
    /// What it said when it started.
    pub(crate) banner: String,
    dir: TempDir,
    client: Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Asserts that it is a problem of that status, and gives what it says.
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        let json = self.json();
        assert_eq!(json["status"], status);
        json["detail"].as_str().unwrap_or_default().to_owned()
    }
}

impl Server {
    /// Starts on a free port of 127.0.0.1.
    pub(crate) fn start(args: &[&str]) -> Server {
        Server::start_with(args, |_| {})
    }

    /// Starts with a configuration file, which it writes into `dir`.
    pub(crate) fn with_file(dir: &TempDir, yaml: &str) -> Server {
        let path = dir.path().join("server.yaml");
        fs::write(&path, yaml).unwrap();
        Server::start(&["--config", path.to_str().unwrap()])
    }

    /// Starts after `prepare` has changed the command.
    pub(crate) fn start_with(args: &[&str], prepare: impl FnOnce(&mut Command)) -> Server {
        let mut command = binary();
        if !args.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        if !args.contains(&"--drain-delay") {
            command.args(["--drain-delay", "0"]);
        }
        command.args(args);
        prepare(&mut command);
        Server::spawn(command)
    }

    /// Starts a command, and waits until it serves.
    pub(crate) fn spawn(command: Command) -> Server {
        Server::spawn_with_stderr(command, Stdio::from)
    }

    /// Starts a command whose standard error is made of the file of the log, and waits until it serves.
    pub(crate) fn spawn_with_stderr(
        mut command: Command,
        stderr: impl FnOnce(File) -> Stdio,
    ) -> Server {
        let dir = TempDir::new().unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        command.stdout(Stdio::piped()).stderr(stderr(log));
        let mut child = command.spawn().unwrap();
        let mut banner = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !banner.contains("\n  try ") {
            let read = lines.read_line(&mut banner).unwrap();
            assert_ne!(read, 0, "it ended: {banner}\n{}", log_in(&dir));
        }
        let (_, url) = banner.split_once("listening  ").unwrap();
        let (_, url) = url.split_once("://").unwrap();
        let mut addr: SocketAddr = url.lines().next().unwrap().parse().unwrap();
        if addr.ip().is_unspecified() {
            addr.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        Server {
            child,
            addr: (std::net::Ipv4Addr::LOCALHOST, addr.port()).into(),
            banner,
            dir,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Starts on a free port. Admin calls need no token, unless `args` name a file with one.
    pub(crate) fn start_admin(args: &[&str]) -> Server {
        if args.contains(&"--admin-token-file") {
            return Server::start(args);
        }
        Server::start(&[args, &["--admin-without-token"]].concat())
    }

    /// As [`Server::start_admin`], and waits until the server has connected to its Redis.
    pub(crate) fn start_connected(args: &[&str]) -> Server {
        let server = Server::start_admin(args);
        let deadline = Instant::now() + PATIENCE;
        while !server.is_ready() {
            assert!(Instant::now() < deadline, "not ready: {}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Asks for readiness without a runtime.
    fn is_ready(&self) -> bool {
        let mut stream = TcpStream::connect(self.addr).unwrap();
        let request = "GET /actuator/health/readiness HTTP/1.0\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.starts_with("HTTP/1.0 200")
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        self.send(self.request(Method::GET, path), "").await
    }

    pub(crate) async fn delete(&self, path: &str) -> HttpResponse {
        self.send(self.request(Method::DELETE, path), "").await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> HttpResponse {
        let request = self.request(Method::POST, path);
        let request = request.header("content-type", "application/json");
        self.send(request, body).await
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let uri = format!("http://{}{path}", self.addr);
        Request::builder().method(method).uri(uri)
    }

    pub(crate) async fn send(
        &self,
        request: http::request::Builder,
        body: impl Into<Bytes>,
    ) -> HttpResponse {
        let request = request.body(Full::new(body.into())).unwrap();
        let answered = tokio::time::timeout(PATIENCE, self.client.request(request)).await;
        let response = answered.expect("no answer ever came").unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        HttpResponse {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    /// What it has written to its log so far.
    ///
    /// A thread of the server writes the lines. SIGUSR2 adds one at the level `info`, so those before it are written when it is.
    pub(crate) fn log(&self) -> String {
        const MARK: &str = "SIGUSR2 has no effect";
        let marks = || log_in(&self.dir).matches(MARK).count();
        let before = marks();
        if self.try_signal("USR2") {
            let deadline = Instant::now() + Duration::from_millis(200);
            while marks() == before && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let log = log_in(&self.dir);
        let lines = log.split_inclusive('\n');
        lines.filter(|line| !line.contains(MARK)).collect()
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        assert!(self.try_signal(signal));
    }

    /// Whether the process was there to get a signal.
    fn try_signal(&self, signal: &str) -> bool {
        let pid = self.child.id().to_string();
        let mut kill = Command::new("kill");
        kill.args([&format!("-{signal}"), &pid])
            .stderr(Stdio::null());
        kill.status().unwrap().success()
    }

    /// Its standard error, if it was piped.
    pub(crate) fn stderr(&mut self) -> std::process::ChildStderr {
        self.child.stderr.take().unwrap()
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        until(|| std::future::ready(self.child.try_wait().unwrap())).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_in(dir: &TempDir) -> String {
    fs::read_to_string(dir.path().join("log")).unwrap()
}

/// Tries again until there is something, for as long as the slowest machine needs.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(mut attempt: impl FnMut() -> F) -> T {
    let trying = async {
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let within = tokio::time::timeout(PATIENCE, trying).await;
    within.expect("what is waited for never came")
}

/// Replaces a file in one step, as a link that is swapped does.
pub(crate) fn write_atomically(path: &Path, text: &str) {
    let next = path.with_file_name("..next");
    fs::write(&next, text).unwrap();
    fs::rename(next, path).unwrap();
}
