//! Ports for servers that tests stop and start again.

use std::{
    net::TcpListener,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Below the ports that systems give to outgoing connections: a client that keeps trying a stopped
/// server could otherwise be given the server's own port, and then talk to itself.
const FIRST: u32 = 11_000;
const COUNT: u32 = 21_000;

/// A port that was free a moment ago, and that no outgoing connection will take.
///
/// # Panics
///
/// When there is none.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + start.wrapping_add(step) % COUNT;
        let port = u16::try_from(port).expect("the range ends below 65536");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}
