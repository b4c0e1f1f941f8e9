//! docs/guides/uploads.md: clients that hang up, and nginx in front.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use crate::{eventually, example::Example, proxy_process::ProxyProcess};

fn start() -> Example {
    Example::start(env!("CARGO_BIN_EXE_uploads_by_bytes"), &[])
}

/// Announces an upload, waits until it may begin, and sends the first 1,000 bytes of it.
fn begin(example: &Example, length: usize) -> TcpStream {
    let (mut stream, status) = announce(example, length);
    assert_eq!(status, 100);
    stream.write_all(&[0; 1000]).expect("it reads");
    stream
}

/// Status of an upload that asks before it sends its body.
fn ask(example: &Example, length: usize) -> u16 {
    announce(example, length).1
}

fn announce(example: &Example, length: usize) -> (TcpStream, u16) {
    let mut stream = TcpStream::connect(example.address()).expect("it listens");
    let head = "POST /files HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue";
    write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n").expect("it reads");
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("a status");
    let status = str::from_utf8(&status[9..]).ok();
    let status = status.and_then(|code| code.parse().ok());
    (stream, status.expect("a status"))
}

#[test]
fn uploads_that_break_off_stay_charged_and_release_their_slots() {
    let example = start();

    let open = [begin(&example, 2_000_000), begin(&example, 2_000_000)];
    assert!(eventually(|| ask(&example, 1) == 429), "two at a time");
    drop(open);

    assert!(eventually(|| ask(&example, 1) == 100), "a slot is free");
    // 1 MB is left, and 231 bytes come back each second.
    assert_eq!(ask(&example, 1_100_000), 429, "both uploads are charged");
    assert!(eventually(|| ask(&example, 900_000) == 100));
}

#[test]
fn uploads_in_chunks_get_a_length_from_nginx() {
    let example = start();
    let proxy = ProxyProcess::nginx(example.address());
    let chunked = ["-H", "Transfer-Encoding: chunked", "-d", "four"];

    assert_eq!(proxy.curl("127.0.0.5", "/files", &chunked), "4 bytes\n201");

    assert_eq!(
        example.ask("POST /files", "transfer-encoding: chunked\r\n"),
        411
    );
}
