//! What a snippet of the documentation is given when it is run: addresses, and a visitor.

use std::{
    env,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;

use crate::{ports::free_port, redis::TestRedis};

const PATIENCE: Duration = Duration::from_secs(30);

/// What all snippets grant to a client in a minute.
const LIMIT: usize = 10;

/// The Redis of this program, and the runtime in which it was started.
static REDIS: Mutex<Option<(Runtime, TestRedis)>> = Mutex::new(None);

/// An address to listen on.
///
/// As soon as somebody does, a visitor comes. When it has seen the limit at work, the program ends
/// well; when it has not, the program fails.
pub fn address() -> SocketAddr {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    thread::spawn(move || {
        // A panic of a thread does not fail a program.
        let visited = thread::spawn(move || visit(address)).join();
        end_redis();
        process::exit(i32::from(visited.is_err()));
    });
    address
}

/// The address of a Redis that answers.
///
/// # Panics
///
/// When none can be started.
pub fn redis() -> String {
    let started = thread::spawn(|| {
        let runtime = Runtime::new().expect("a runtime");
        let redis = runtime.block_on(TestRedis::start());
        (runtime, redis)
    });
    let started = started.join().expect("a Redis");
    let url = started.1.url().to_owned();
    *REDIS.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
    url
}

/// The address of a Redis that is not there.
pub fn no_redis() -> String {
    format!("redis://127.0.0.1:{}", free_port())
}

fn visit(server: SocketAddr) {
    let mut passed = 0;
    let start = Instant::now();
    loop {
        let answer = answer(server, start);
        assert!(answer.contains("x-ratelimit-limit: 10\r\n"), "{answer}");
        assert!(start.elapsed() < PATIENCE, "nothing is denied");
        match answer.get(9..12) {
            Some("200") => passed += 1,
            Some("429") if redis_has_counted() => break,
            // Counted in this process until Redis is connected.
            Some("429") => thread::sleep(Duration::from_millis(20)),
            _ => panic!("{answer}"),
        }
    }
    // A server that others use as well may have given the whole budget to them.
    assert!(
        passed >= LIMIT || env::var("RATELIMIT_TEST_REDIS_URL").is_ok(),
        "{passed} passed"
    );
}

/// The answer to one request, as soon as there is a server.
fn answer(server: SocketAddr, start: Instant) -> String {
    let mut stream = loop {
        match TcpStream::connect(server) {
            Ok(stream) => break stream,
            Err(error) => assert!(start.elapsed() < PATIENCE, "nobody listens: {error}"),
        }
        thread::sleep(Duration::from_millis(5));
    };
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

/// Whether a key of the policy `api` is in Redis; true where there is no Redis.
fn redis_has_counted() -> bool {
    let redis = REDIS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((_, redis)) = &*redis else {
        return true;
    };
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*api*")
        .query(&mut redis.connection())
        .expect("the names of all keys");
    !keys.is_empty()
}

/// The end of a process drops nothing.
fn end_redis() {
    let redis = REDIS.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((runtime, redis)) = redis {
        runtime.block_on(async { drop(redis) });
    }
}
