//! HTTP/2 frames by hand, for peers that no library would be.

use std::net::SocketAddr;

use tokio::{io::AsyncWriteExt as _, net::TcpStream};

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const PATH: &[u8] = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A frame with its head. The length is that of the payload, unless another is given.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head[..], payload].concat()
}

/// Settings whose initial window lets the peer send that many bytes on each stream.
pub(super) fn settings(initial_window: u32) -> Vec<u8> {
    let window = [&[0, 4][..], &initial_window.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &window)
}

/// The head of a call of the service.
pub(super) fn call_head(stream: u32) -> Vec<u8> {
    let literal = |name: &[u8], value: &[u8]| {
        let length = |text: &[u8]| u8::try_from(text.len()).unwrap();
        [&[0, length(name)], name, &[length(value)], value].concat()
    };
    let block = [
        // `:method` POST and `:scheme` http of the static table.
        vec![0x83, 0x86],
        literal(b":path", PATH),
        literal(b":authority", b"localhost"),
        literal(b"content-type", b"application/grpc"),
        literal(b"te", b"trailers"),
    ];
    frame(HEADERS, END_HEADERS, stream, &block.concat())
}

/// A message of a call, and its end.
pub(super) fn call_body(stream: u32, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let framed = [&[0][..], &length, message].concat();
    frame(DATA, END_STREAM, stream, &framed)
}

pub(super) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// A connection that has sent the preface and settings.
pub(super) async fn connect(addr: SocketAddr, initial_window: u32) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let hello = [PREFACE, &settings(initial_window)].concat();
    stream.write_all(&hello).await.unwrap();
    stream
}
