//! What a snippet of the documentation is given when it is run: addresses, and a visitor.

use std::{
    env,
    io::{Read as _, Write as _},
    mem,
    net::{SocketAddr, TcpStream},
    process,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;

use crate::{ports::free_port, redis::TestRedis};

const PATIENCE: Duration = Duration::from_secs(30);

/// What all snippets grant to a client in a minute.
const LIMIT: usize = 10;

/// The Redis that this program was given.
static REDIS: Mutex<Redis> = Mutex::new(Redis::Unasked);

enum Redis {
    Unasked,
    Absent,
    /// With the runtime in which it was started.
    Running(Runtime, TestRedis),
}

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
    let (runtime, redis) = started.join().expect("a Redis");
    let url = redis.url().to_owned();
    *given() = Redis::Running(runtime, redis);
    url
}

/// The address of a Redis that is not there.
pub fn no_redis() -> String {
    *given() = Redis::Absent;
    format!("redis://127.0.0.1:{}", free_port())
}

fn given() -> MutexGuard<'static, Redis> {
    REDIS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks until the limit denies, by the store that the program names.
///
/// What this process decides alone, while Redis does not answer, is told without numbers.
fn visit(server: SocketAddr) {
    let is_absent = matches!(*given(), Redis::Absent);
    let mut passed = 0;
    let start = Instant::now();
    loop {
        let answer = answer(server, start);
        let is_told = answer.contains("x-ratelimit-limit: 10\r\n");
        assert!(
            start.elapsed() < PATIENCE,
            "not denied as expected: {answer}"
        );
        match answer.get(9..12) {
            Some("200") => passed += 1,
            Some("429") if is_told != is_absent => break,
            Some("429") => thread::sleep(Duration::from_millis(20)),
            _ => panic!("{answer}"),
        }
    }
    // A server that others use as well may have given the whole budget to them.
    let is_alone = env::var("RATELIMIT_TEST_REDIS_URL").is_err();
    assert!(passed >= LIMIT || !is_alone, "{passed} passed");
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

/// The end of a process drops nothing.
fn end_redis() {
    if let Redis::Running(runtime, redis) = mem::replace(&mut *given(), Redis::Unasked) {
        runtime.block_on(async { drop(redis) });
    }
}
