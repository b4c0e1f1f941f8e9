//! One instance of a service that holds slots until it is killed.
//!
//! Arguments: the address of Redis, a prefix, the text of the policy, a key, how many to ask for. It
//! prints how many slots it got, and then waits for its standard input to end.

use std::{
    io::{Read as _, Write as _},
    time::Duration,
};

use ratelimit_core::{Key, Limiter, Policy, RedisConfig, store::Hit};
use ratelimit_tests::redis::connected;

/// Longer than a busy machine needs for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, prefix, text, key, wanted] = arguments.as_slice() else {
        panic!("expected: URL PREFIX POLICY KEY NUMBER");
    };
    let wanted: usize = wanted.parse().expect("a number");
    let policy = Policy::parse("held", text).expect("a policy");
    let key = Key::new(key).expect("a key");
    let config = RedisConfig::new(url)
        .and_then(|config| config.prefix(prefix))
        .expect("an address")
        .timeout(PATIENCE)
        .connect_timeout(PATIENCE);
    let limiter = Limiter::new(connected(config).await);

    let mut held = Vec::new();
    for _ in 0..wanted {
        let (verdict, charge) = limiter.reserve(Hit::new(&policy, &key)).await;
        if verdict.is_allowed() {
            held.push(charge.expect("a charge"));
        }
    }
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", held.len()).expect("standard output");
    stdout.flush().expect("standard output");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()))
        .await
        .expect("a thread")
        .expect("standard input");
}
