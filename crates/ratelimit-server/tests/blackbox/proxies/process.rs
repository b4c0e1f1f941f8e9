//! A proxy process, and a client that sends what it likes.

use std::process::{Child, Command};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

/// A proxy that runs until this is dropped.
pub(super) struct Proxy {
    pub(super) child: Child,
    pub(super) port: u16,
    pub(super) _dir: TempDir,
}

/// The answer of a proxy.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: String,
}

impl Proxy {
    /// The answer to a request with these header lines; nothing while the proxy does not listen yet.
    pub(super) async fn get(&self, path: &str, headers: &str) -> Option<Answer> {
        self.get_from([127, 0, 0, 1], path, headers).await
    }

    /// The answer to a request of a client at another loopback address.
    pub(super) async fn get_from(
        &self,
        client: [u8; 4],
        path: &str,
        headers: &str,
    ) -> Option<Answer> {
        let socket = TcpSocket::new_v4().ok()?;
        socket.bind((client, 0).into()).ok()?;
        let proxy = ([127, 0, 0, 1], self.port).into();
        let mut stream: TcpStream = socket.connect(proxy).await.ok()?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{headers}\r\nConnection: close\r\n\r\n",
            self.port
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        let status = text.get(9..12)?.parse().ok()?;
        Some(Answer { status, text })
    }

    pub(super) async fn status(&self, path: &str, headers: &str) -> u16 {
        let answer = self.get(path, headers).await;
        answer.expect("an answer").status
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        // A master ends its workers only when it is asked to.
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}
