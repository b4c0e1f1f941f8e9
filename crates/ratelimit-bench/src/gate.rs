//! The counts of the gate.

use std::{env, path::PathBuf, time::Duration};

use ratelimit_core::{
    Key, Policy, RedisConfig, RedisStore,
    store::{Hit, Store},
};

use crate::{
    callgrind::{CountedServer, count},
    rest::{self, RestProgram},
    workload::{Work, fallback, layer, memory, prefetch},
};

/// Longer than anything takes on a server under callgrind.
const TIMEOUT: Duration = Duration::from_secs(60);
const ALLOCATING: u32 = 1_000;

/// The counts of one run of the gate.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The version of the server whose instructions were counted.
    pub server: String,
    /// Works and what they cost.
    pub counts: Vec<(String, f64)>,
}

/// Counts everything; `allocations` tells how many a closure makes.
///
/// # Panics
///
/// When valgrind or redis-server is missing.
pub fn measure_gate(allocations: fn(&mut dyn FnMut()) -> u64) -> Measured {
    let works = memory::checks().into_iter().chain(prefetch::checks());
    let works = works.chain(fallback::checks()).chain(layer::requests());
    let allocated = works.map(|work| allocations_of(work, allocations));
    let mut counts = over_bare(count("instructions"));
    counts.extend(over_bare(allocated.collect()));
    let mut server = CountedServer::start();
    let version = server.server().version();
    counts.extend(redis_counts(&mut server));
    let dev_server = RestProgram::ours(dev_server());
    counts.push((
        "server.rest.allowed".to_owned(),
        rest::instructions(&dev_server),
    ));
    Measured {
        server: version,
        counts,
    }
}

/// The server as `cargo build` and tests leave it. Building it for release would take minutes.
fn dev_server() -> PathBuf {
    let gate = env::current_exe().expect("our own path");
    let target = gate.ancestors().nth(2).expect("it is in target/release");
    target.join("debug/ratelimit-server")
}

/// Subtracts the cost of the bare request from each work of the layer.
fn over_bare(mut counts: Vec<(String, f64)>) -> Vec<(String, f64)> {
    let is_bare = |(name, _): &(String, f64)| name.starts_with(layer::BARE);
    let place = counts.iter().position(is_bare);
    let (_, bare) = counts.remove(place.expect("the bare request is counted"));
    for (name, count) in &mut counts {
        if name.starts_with(layer::PREFIX) {
            *count -= bare;
        }
    }
    counts
}

fn allocations_of(mut work: Work, allocations: fn(&mut dyn FnMut()) -> u64) -> (String, f64) {
    // The first hit makes the key known, and a log or a header map reaches its size.
    (0..ALLOCATING).for_each(|_| (work.once)());
    let made = allocations(&mut || (0..ALLOCATING).for_each(|_| (work.once)()));
    let each = f64::from(u32::try_from(made).expect("a few for each")) / f64::from(ALLOCATING);
    (format!("{}.allocations", work.name), each)
}

fn redis_counts(server: &mut CountedServer) -> Vec<(String, f64)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let config = RedisConfig::new(&server.server().url()).expect("an address of Redis");
        let config = config.timeout(TIMEOUT).connect_timeout(TIMEOUT);
        let store = RedisStore::new(config);
        assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
        let mut counts = Vec::new();
        for (algorithm, plenty, little) in [
            ("token_bucket", "token_bucket 1000000/s", "token_bucket 1/h"),
            ("fixed_window", "fixed_window 1000000/s", "fixed_window 1/d"),
            (
                "two_limits",
                "token_bucket 1000000/s; fixed_window 1000000/h",
                "token_bucket 1/h; fixed_window 1/d",
            ),
        ] {
            for (outcome, limits) in [("allowed", plenty), ("denied", little)] {
                // A policy of its own: a value of other limits would take a second call.
                let policy = Policy::parse(&format!("{algorithm}_{outcome}"), limits);
                let policy = policy.expect("limits that are well formed");
                let count = redis_call(server, &store, &policy).await;
                counts.push((format!("redis.{algorithm}.{outcome}"), count));
            }
        }
        // The hits have one slot, which they take again.
        let policy = Policy::parse("concurrency_held", "concurrency 1");
        let policy = policy.expect("limits that are well formed");
        counts.push((
            "redis.concurrency.held".to_owned(),
            redis_call(server, &store, &policy).await,
        ));
        counts
    })
}

/// The server's instructions for one call after another.
pub(crate) async fn redis_call(
    server: &mut CountedServer,
    store: &RedisStore,
    policy: &Policy,
) -> f64 {
    let key = Key::new("user:12345678").expect("a key that is not empty");
    let ask = async || {
        let answered = store.hit(Hit::new(policy, &key)).await;
        answered.expect("the server decides");
    };
    server.of_a_script(ask).await
}
