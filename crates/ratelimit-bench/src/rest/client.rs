//! A client that posts one check after another.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use serde_json::Value;

use super::{KEYS, server::RestServer};

/// A connection that stays open.
pub(crate) struct RestConnection {
    stream: TcpStream,
    head: String,
    members: &'static str,
}

impl RestConnection {
    pub(crate) fn open(server: &RestServer) -> RestConnection {
        let stream = TcpStream::connect(server.addr).expect("the server listens");
        stream.set_nodelay(true).expect("a connection of TCP");
        let RestServer { addr, path, .. } = server;
        RestConnection {
            stream,
            head: format!(
                "POST {path} HTTP/1.1\r\nHost: {addr}\r\nContent-Type: application/json\r\n"
            ),
            members: server.members,
        }
    }

    /// Posts a check, and returns the body of the response, which must have the status 200.
    pub(crate) fn check(&mut self, number: u32) -> Value {
        let body = format!(r#"{{"key":"user:{:08}",{}}}"#, number % KEYS, self.members);
        let (head, length) = (&self.head, body.len());
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        let sent = self.stream.write_all(request.as_bytes());
        sent.expect("the server reads");
        let (mut response, mut chunk) = (Vec::new(), [0; 4_096]);
        while !is_whole(&response) {
            let length = self.stream.read(&mut chunk).expect("the server answers");
            assert!(length > 0, "the server hung up");
            response.extend_from_slice(&chunk[..length]);
        }
        let response = String::from_utf8(response).expect("a response of text");
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        let (_, body) = response.split_once("\r\n\r\n").expect("it is whole");
        serde_json::from_str(body).expect("a body of JSON")
    }
}

/// Whether a response has arrived with all of its body.
pub(crate) fn is_whole(response: &[u8]) -> bool {
    let text = String::from_utf8_lossy(response);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, length)| length.trim().parse().ok());
    body.len() >= length.unwrap_or(usize::MAX)
}
