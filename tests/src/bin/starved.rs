//! An instance whose process has no file descriptors left when it has to connect again.
//!
//! Argument: the address of Redis. It says `connected`, `starved` and `healed`, and goes on at a line.

use std::{
    fs::File,
    io::stdin,
    time::{Duration, Instant},
};

use ratelimit_core::{FailureMode, Key, Limiter, RedisConfig, RedisStore, Verdict};
use ratelimit_tests::chaos::endless;

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::main(worker_threads = 2)]
async fn main() {
    let url = std::env::args().nth(1).expect("the address of Redis");
    let store = RedisStore::new(RedisConfig::new(&url).expect("a valid address"));
    let limiter = Limiter::new(store.clone()).failure_mode(FailureMode::Local);

    wait();
    assert!(store.wait_connected(PATIENCE).await);
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    println!("connected");

    wait();
    let (mut unchecked, mut longest) = (0, Duration::ZERO);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        let verdict = check(&limiter).await;
        longest = longest.max(asked.elapsed());
        assert!(verdict.is_allowed());
        unchecked += u32::from(!matches!(verdict, Verdict::Checked(_)));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(longest < Duration::from_secs(1) && unchecked > 0);
    println!("starved: {unchecked} decisions without the store, longest {longest:?}");

    wait();
    drop(taken);
    let fed = Instant::now();
    while !matches!(check(&limiter).await, Verdict::Checked(_)) {
        assert!(fed.elapsed() < PATIENCE, "never healed");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    println!("healed in {:?}", fed.elapsed());
}

async fn check(limiter: &Limiter) -> Verdict {
    let key = Key::new("starved").expect("a valid key");
    limiter.check(&endless(), &key).await
}

/// Waits for the test's word.
fn wait() {
    let mut line = String::new();
    tokio::task::block_in_place(|| stdin().read_line(&mut line)).expect("a line");
}
