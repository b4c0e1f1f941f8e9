//! Ports for servers that tests stop and start again.

use std::{
    net::{TcpListener, UdpSocket},
    process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

/// Below the ports that systems give to outgoing connections: a client that keeps trying a stopped
/// server could otherwise be given the server's own port, and then talk to itself.
const FIRST: u32 = 11_000;
const COUNT: u32 = 21_000;

/// A port of 127.0.0.1 that no other test is given while this process runs, and that no outgoing connection takes.
///
/// The UDP port of the same number is the lock: it stays bound until the process ends. Process ids that are near to each
/// other begin at ports that are near to each other, and the locks keep them apart.
///
/// # Panics
///
/// When there is none.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static LOCKS: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    let start = process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + start.wrapping_add(step) % COUNT;
        let port = u16::try_from(port).expect("the range ends below 65536");
        let Ok(lock) = UdpSocket::bind(("127.0.0.1", port)) else {
            continue;
        };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
            locks.push(lock);
            return port;
        }
    }
    panic!("no free port");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_stays_locked_for_other_processes() {
        let port = free_port();

        assert!(TcpListener::bind(("127.0.0.1", port)).is_ok());
        assert!(UdpSocket::bind(("127.0.0.1", port)).is_err());
        assert_ne!(free_port(), port);
    }
}
