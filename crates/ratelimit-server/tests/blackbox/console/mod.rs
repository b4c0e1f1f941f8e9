//! The console: its sessions, its access rules, its files and its live numbers.

mod access;
mod assets;
mod client_key;
mod config_file;
mod forecast;
pub(crate) mod live;
mod pages;
mod policies;
mod session;
mod simulate;

use std::fmt::Write as _;

use http::{Method, request::Builder};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::server::{HttpResponse, Server};

pub(crate) const SESSION: &str = "/console/api/session";
pub(crate) const TOKEN: &str = "0123456789abcdef-secret";

/// A server with an admin token, and the directory of its file.
pub(crate) struct Console {
    pub(crate) server: Server,
    dir: TempDir,
}

impl Console {
    pub(crate) fn start(args: &[&str]) -> Console {
        let dir = TempDir::new().unwrap();
        let file = write_token(&dir, TOKEN);
        let server = Server::start(&[args, &["--admin-token-file", &file]].concat());
        Console { server, dir }
    }

    /// Replaces the token; the server reads it soon.
    fn replace_token(&self, token: &str) {
        write_token(&self.dir, token);
    }

    /// A request as the page of the console makes it in a browser.
    pub(crate) fn page(&self, method: Method, path: &str, cookie: &str) -> Builder {
        let request = self.server.request(method, path);
        request
            .header("cookie", cookie)
            .header("sec-fetch-site", "same-origin")
    }

    async fn ask(&self, method: Method, path: &str, cookie: &str) -> HttpResponse {
        self.server.send(self.page(method, path, cookie), "").await
    }

    async fn attempt(&self, token: &str) -> HttpResponse {
        let body = serde_json::json!({ "token": token });
        self.server.post(SESSION, body.to_string()).await
    }

    /// Signs in, and returns the cookie as a browser sends it.
    pub(crate) async fn sign_in(&self) -> String {
        let answer = self.attempt(TOKEN).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        cookie_of(&answer)
    }
}

/// Writes the token to its file.
fn write_token(dir: &TempDir, token: &str) -> String {
    let path = dir.path().join("token");
    std::fs::write(&path, token).unwrap();
    path.to_str().unwrap().to_owned()
}

/// `NAME=VALUE` of the cookie that an answer sets.
fn cookie_of(answer: &HttpResponse) -> String {
    let cookie = answer.header("set-cookie").unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

/// The cookie of a session that ends so many seconds from now, and started half an hour before.
fn cookie_ending_in(seconds: i64, token: &str) -> String {
    cookie_of_span(seconds - 1_800, seconds, token)
}

/// The cookie of a session with a start and an end in seconds from now, made by the rules of the design.
fn cookie_of_span(start: i64, end: i64, token: &str) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let [start, end] = [start, end].map(|seconds| now.checked_add_signed(seconds).unwrap());
    let times = format!("{start}.{end}");
    let key = hmac(token.as_bytes(), b"console session");
    let code = hmac(&key, times.as_bytes());
    let code = code.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    format!("ratelimit_console={times}.{code}")
}

/// HMAC-SHA-256 with a key of at most 64 bytes.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = [&block.map(|byte| byte ^ 0x36)[..], message].concat();
    let outer = [&block.map(|byte| byte ^ 0x5c)[..], &Sha256::digest(inner)].concat();
    Sha256::digest(outer).into()
}

/// The whole answer to a GET with a `Host` of choice.
async fn with_host(server: &Server, path: &str, host: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
