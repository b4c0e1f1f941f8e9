//! A client that sees the bytes of an answer.

use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

/// An answer, with its fields sorted and without its date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self
            .fields
            .iter()
            .filter_map(|field| field.strip_prefix(name)?.strip_prefix(": "));
        let value = values.next();
        assert_eq!(values.next(), None, "{name} stands twice");
        value
    }
}

/// Sends a request on a connection of its own, without blocking the servers in this process.
pub(crate) async fn ask(server: SocketAddr, request: &str, fields: &[&str]) -> Answer {
    let mut text = format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for field in fields {
        text.push_str(field);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    let asked = tokio::task::spawn_blocking(move || exchange(server, &text));
    asked.await.expect("an answer")
}

/// Sends a request with a body.
pub(crate) async fn post(server: SocketAddr, path: &str, body: &str) -> Answer {
    let length = body.len();
    let text = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let asked = tokio::task::spawn_blocking(move || exchange(server, &text));
    asked.await.expect("an answer")
}

/// Sends a request with a body in chunks, whose length is not announced.
pub(crate) async fn post_chunked(server: SocketAddr, path: &str, chunks: &[&str]) -> Answer {
    let mut text = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    for chunk in chunks.iter().chain(&[""]) {
        write!(text, "{:x}\r\n{chunk}\r\n", chunk.len()).expect("a string takes all");
    }
    let asked = tokio::task::spawn_blocking(move || exchange(server, &text));
    asked.await.expect("an answer")
}

pub(crate) async fn get(server: SocketAddr, path: &str) -> Answer {
    ask(server, &format!("GET {path}"), &[]).await
}

fn exchange(server: SocketAddr, text: &str) -> Answer {
    let mut stream = TcpStream::connect(server).expect("a server");
    stream.write_all(text.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.get(9..12));
    let fields = lines.filter(|line| !line.starts_with("date: "));
    let mut fields: Vec<String> = fields.map(str::to_owned).collect();
    fields.sort();
    Answer {
        status: status.and_then(|code| code.parse().ok()).expect("a status"),
        fields,
        body: body.to_owned(),
    }
}
