//! One instance of a service that prefetches: hits one key at a steady rate and prints what passed. Then it keeps its
//! units until its standard input ends.
//!
//! Arguments: the address of Redis, a prefix, the text of the policy, the share in percent, hits a second, milliseconds.

use std::fmt::Write as _;
use std::{
    io::{Read as _, Write as _},
    time::{Duration, Instant},
};

use ratelimit_core::{Key, Limiter, Policy, RedisConfig, Verdict};
use ratelimit_tests::redis::connected;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, prefix, text, share, rate, millis] = arguments.as_slice() else {
        panic!("expected: URL PREFIX POLICY SHARE RATE MILLISECONDS");
    };
    let share: u32 = share.parse().expect("a share");
    let rate: u128 = rate.parse().expect("a rate");
    let millis: u64 = millis.parse().expect("milliseconds");
    let policy = Policy::parse("hot", text).expect("a policy");
    let policy = match share {
        0 => policy,
        share => policy.with_prefetch(share).expect("a share"),
    };
    let config = RedisConfig::new(url)
        .and_then(|config| config.prefix(prefix))
        .expect("an address")
        .timeout(Duration::from_secs(10));
    let limiter = Limiter::new(connected(config).await);
    let key = Key::new("one").expect("a key");

    let (mut hits, mut prefetched, mut passed) = (0_u128, 0_u64, Vec::new());
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(millis) {
        let due = start.elapsed().as_micros() * rate / 1_000_000;
        while hits < due {
            let Verdict::Checked(decision) = limiter.check(&policy, &key).await else {
                panic!("the store decides");
            };
            hits += 1;
            prefetched += u64::from(decision.is_prefetched);
            if decision.is_allowed() {
                passed.push(decision.now.as_micros());
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut lines = format!("hits {hits} {prefetched}\n");
    for now in passed {
        let _ = writeln!(lines, "passed {now}");
    }
    lines.push_str("end\n");
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(lines.as_bytes());
    written
        .and_then(|()| stdout.flush())
        .expect("standard output");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()))
        .await
        .expect("a thread")
        .expect("standard input");
}
