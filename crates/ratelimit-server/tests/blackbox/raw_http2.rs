//! HTTP/2 frames by hand, for peers that no library would be.

use std::net::SocketAddr;

use tokio::{io::AsyncWriteExt as _, net::TcpStream};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const PATH: &[u8] = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A frame with its head. The length is that of the payload, unless another is given.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head[..], payload].concat()
}

/// Settings whose initial window lets the peer send that many bytes on each stream.
pub(crate) fn settings(initial_window: u32) -> Vec<u8> {
    let window = [&[0, 4][..], &initial_window.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &window)
}

/// The head of a request with these fields.
pub(crate) fn request_head(stream: u32, is_end: bool, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let literal = |(name, value): &(&[u8], &[u8])| {
        let length = |text: &[u8]| u8::try_from(text.len()).unwrap();
        [&[0, length(name)], *name, &[length(value)], *value].concat()
    };
    let block: Vec<u8> = fields.iter().flat_map(literal).collect();
    let flags = END_HEADERS | if is_end { END_STREAM } else { 0 };
    frame(HEADERS, flags, stream, &block)
}

/// The head of a call of the service.
pub(crate) fn call_head(stream: u32) -> Vec<u8> {
    let fields: [(&[u8], &[u8]); 6] = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", PATH),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ];
    request_head(stream, false, &fields)
}

/// A GET of a path.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    let fields: [(&[u8], &[u8]); 4] = [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":path", path.as_bytes()),
        (b":authority", b"localhost"),
    ];
    request_head(stream, true, &fields)
}

/// A POST of JSON to a path.
pub(crate) fn post(stream: u32, path: &str, body: &str) -> Vec<u8> {
    let fields: [(&[u8], &[u8]); 5] = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.as_bytes()),
        (b":authority", b"localhost"),
        (b"content-type", b"application/json"),
    ];
    let head = request_head(stream, false, &fields);
    [head, frame(DATA, END_STREAM, stream, body.as_bytes())].concat()
}

/// A message of a call, and its end.
pub(crate) fn call_body(stream: u32, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let framed = [&[0][..], &length, message].concat();
    frame(DATA, END_STREAM, stream, &framed)
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// A connection that has sent the preface and settings.
pub(crate) async fn connect(addr: SocketAddr, initial_window: u32) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let hello = [PREFACE, &settings(initial_window)].concat();
    stream.write_all(&hello).await.unwrap();
    stream
}
