//! A link to a server that is far away.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Bytes that are carried at once.
const CHUNK: usize = 64 * 1024;

/// A TCP proxy that delivers each reply one round trip later.
///
/// - Requests are carried at once, so the whole round trip is on the way back. A client cannot tell the difference.
/// - Any number of replies is on the way: the link adds latency and limits no rate.
/// - Threads carry the bytes, so the runtime of the client is not involved. They end with their connection; the one
///   that accepts connections ends with the process.
#[derive(Debug)]
pub(crate) struct FarLink {
    port: u16,
}

impl FarLink {
    /// Listens on a free port in front of the server at `target` on 127.0.0.1.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    pub(crate) fn start(target: u16, round_trip: Duration) -> FarLink {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A client whose server is gone sees a closed connection.
                let _ = carry(client, target, round_trip);
            }
        });
        FarLink { port }
    }

    /// Its address, as that of a Redis.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

/// Starts the threads of one connection.
fn carry(client: TcpStream, target: u16, round_trip: Duration) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", target))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (requests, to_server) = (client.try_clone()?, server.try_clone()?);
    let (on_the_way, arriving) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || each_chunk(requests, |bytes| (&to_server).write_all(bytes).is_ok()));
    thread::spawn(move || {
        each_chunk(server, |bytes| {
            let due = Instant::now() + round_trip;
            on_the_way.send((due, bytes.to_vec())).is_ok()
        });
    });
    thread::spawn(move || {
        for (due, bytes) in arriving {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if (&client).write_all(&bytes).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Reads until the end, or until `take` returns `false`.
fn each_chunk(mut from: TcpStream, mut take: impl FnMut(&[u8]) -> bool) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length) = from.read(&mut chunk)
        && length > 0
        && take(&chunk[..length])
    {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_arrive_in_order_and_not_before_their_round_trip() {
        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = echo.local_addr().unwrap().port();
        thread::spawn(move || {
            let (client, _) = echo.accept().unwrap();
            let reply = client.try_clone().unwrap();
            each_chunk(client, |bytes| (&reply).write_all(bytes).is_ok());
        });
        let round_trip = Duration::from_millis(20);
        let link = FarLink::start(target, round_trip);
        let mut client = TcpStream::connect(("127.0.0.1", link.port)).unwrap();
        let sent = Instant::now();

        client.write_all(b"one, ").unwrap();
        client.write_all(b"two").unwrap();
        let mut replies = [0; 8];
        client.read_exact(&mut replies).unwrap();

        assert!(sent.elapsed() >= round_trip);
        assert_eq!(&replies, b"one, two");
    }
}
