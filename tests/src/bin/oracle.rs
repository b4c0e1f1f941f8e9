//! One instance of a service under load: hits shared keys and prints every answer.
//!
//! Arguments: the address of Redis, a prefix, a seed, the text of the policy, hits for each task.

use std::{fmt::Write as _, io::Write as _, time::Duration};

use ratelimit_core::{
    Key, Policy, RedisConfig,
    store::{Hit, Store as _},
};
use ratelimit_tests::{random::Random, redis::connected};

const TASKS: u64 = 64;
const KEYS: u64 = 4;
/// Longer than a busy machine needs for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, prefix, seed, text, hits] = arguments.as_slice() else {
        panic!("expected: URL PREFIX SEED POLICY HITS");
    };
    let seed: u64 = seed.parse().expect("a seed");
    let hits: u64 = hits.parse().expect("a number of hits");
    let policy = Policy::parse("oracle", text).expect("a policy");
    let config = RedisConfig::new(url)
        .and_then(|config| config.prefix(prefix))
        .expect("an address")
        .timeout(PATIENCE)
        .connect_timeout(PATIENCE);
    let store = connected(config).await;

    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let (store, policy) = (store.clone(), policy.clone());
        tasks.push(tokio::spawn(async move {
            let mut random = Random::new(seed * TASKS + task);
            let mut lines = String::new();
            for _ in 0..hits {
                let number = random.range(1, KEYS);
                let cost = random.range(1, 3);
                let key = Key::new(format!("k{number}")).expect("a key");
                let hit = Hit::new(&policy, &key).cost(cost);
                let decision = store.hit(hit).await.expect("a decision");
                let (now, allowed) = (decision.now.as_micros(), decision.is_allowed());
                writeln!(lines, "{number} {now} {cost} {allowed}").expect("a string takes it");
            }
            lines
        }));
    }
    let mut stdout = std::io::stdout();
    for task in tasks {
        let lines = task.await.expect("a task");
        stdout.write_all(lines.as_bytes()).expect("standard output");
    }
}
