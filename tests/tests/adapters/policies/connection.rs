//! Requests that stay open.

use std::{future::Future, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A request whose response has begun, and does not end; dropping it hangs up.
#[derive(Debug)]
pub(crate) struct Open {
    stream: TcpStream,
    pub(crate) status: u16,
}

impl Open {
    /// Sends a request, and reads the beginning of its response.
    pub(crate) async fn ask(server: SocketAddr, path: &str, fields: &[&str]) -> Open {
        let mut stream = Open::send(server, path, fields).await;
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = stream.read_buf(&mut head).await.expect("a response");
            assert_ne!(read, 0, "the response has a head");
        }
        let status = str::from_utf8(&head[9..12]).ok();
        let status = status.and_then(|code| code.parse().ok());
        Open {
            stream,
            status: status.expect("a status"),
        }
    }

    /// Sends a request that nobody answers.
    pub(crate) async fn send(server: SocketAddr, path: &str, fields: &[&str]) -> TcpStream {
        let mut stream = TcpStream::connect(server).await.expect("a server");
        let mut lines = vec![format!("GET {path} HTTP/1.1"), "host: localhost".to_owned()];
        lines.extend(fields.iter().map(|field| (*field).to_owned()));
        let text = lines.join("\r\n") + "\r\n\r\n";
        stream.write_all(text.as_bytes()).await.expect("it reads");
        stream
    }

    /// Reads all of a response that fails before its end, or before its beginning.
    pub(crate) async fn fail(server: SocketAddr, path: &str) {
        let mut stream = Open::send(server, path, &["connection: close"]).await;
        let mut told = Vec::new();
        let _ = stream.read_to_end(&mut told).await;
        assert!(!told.ends_with(b"0\r\n\r\n"), "it does not end well");
    }

    /// A connection that is upgraded.
    pub(crate) async fn upgrade(server: SocketAddr, path: &str, fields: &[&str]) -> Open {
        let upgrade = ["connection: upgrade", "upgrade: websocket"];
        let fields: Vec<&str> = fields.iter().copied().chain(upgrade).collect();
        Open::ask(server, path, &fields).await
    }

    /// Closes the connection as a polite peer does.
    pub(crate) async fn close(mut self) {
        self.stream.shutdown().await.expect("it is open");
    }
}

/// Whether it comes true while a server hears that somebody hung up.
pub(crate) async fn eventually<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) -> bool {
    for _ in 0..200 {
        if holds().await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}
