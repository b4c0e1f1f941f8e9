//! docs/guides/websockets.md: echoed messages, clients that are gone, and nginx in front.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use crate::{eventually, example::Example, proxy_process::ProxyProcess};

/// Opens a websocket, and returns its status.
pub(crate) fn open(address: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = "GET /chat HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let status = String::from_utf8_lossy(&head[9..12]).into_owned();
    (stream, status)
}

#[test]
fn websockets_hold_their_slots_until_their_clients_are_gone() {
    let example = Example::start(env!("CARGO_BIN_EXE_websocket_sessions"), &[]);

    let (mut first, status) = open(example.address());
    assert_eq!(status, "101");
    let (second, status) = open(example.address());
    assert_eq!(status, "101");
    assert_eq!(open(example.address()).1, "429");

    // A text frame of two bytes, masked with zeros, comes back without the mask.
    first.write_all(b"\x81\x82\0\0\0\0hi").expect("it reads");
    let mut echo = [0; 4];
    first.read_exact(&mut echo).expect("an echo");
    assert_eq!(&echo, b"\x81\x02hi");

    // The kernel closes the connections of a process that is killed in the same way.
    drop(second);
    let mut third = None;
    let is_free = eventually(|| {
        let (stream, status) = open(example.address());
        third = Some(stream);
        status == "101"
    });
    assert!(is_free);
    assert_eq!(
        open(example.address()).1,
        "429",
        "the first session is still open"
    );
}

#[test]
fn websockets_pass_nginx_and_are_freed_through_it() {
    let example = Example::start(env!("CARGO_BIN_EXE_websocket_sessions"), &[]);
    let nginx = ProxyProcess::nginx_of("docs/guides/websockets.md", example.address());
    let open = || open(&nginx.address());

    let (first, second) = (open(), open());
    assert_eq!((&*first.1, &*second.1), ("101", "101"));
    // The example does not trust nginx, so all clients are one.
    assert_eq!(open().1, "429");
    drop(first);

    assert!(eventually(|| open().1 == "101"));
}
