//! How a log grows with what it remembers.

use std::time::Duration;

use ratelimit_core::{
    Clock, Key, Limiter, MemoryStore, Policy, RedisStore, Timestamp,
    store::{Hit, Store as _},
};

use super::{
    Plan,
    binaries::bytes_of_log,
    duration::exact,
    load::{TIMEOUT, config},
    redis_bytes::bytes,
};
use crate::{
    callgrind::CountedServer,
    report::{Chart, Report, Scale, Series, Spread},
    workload::poll_now,
};

const SIZES: [u32; 4] = [10, 100, 1_000, 10_000];
const DAY: Duration = Duration::from_secs(86_400);

/// Few, so that a log keeps about its size while they come.
const CALLS: u32 = 1;

/// More than [`CountedServer::of_each`] makes of one.
const ROOM: u32 = 10;

pub(super) fn run(plan: Plan, report: &mut Report) {
    let chart = |name: &'static str, title: &str, y: &'static str, scale, series| Chart {
        name: name.into(),
        title: title.to_owned(),
        x: "hits that the log remembers".into(),
        y: y.into(),
        scale,
        series,
    };
    let sizes = SIZES.into_iter();
    let time = sizes.map(|size| (f64::from(size), in_memory(plan, size)));
    let time = time.collect();
    let title = "A check of a sliding window log in memory";
    report.charts.push(chart(
        "log_time",
        title,
        "ns",
        Scale::Linear,
        vec![Series::of_spreads("this limiter", time)],
    ));
    let title = "A decision of a sliding window log in Redis";
    let cost = Series::new("this limiter", in_redis());
    report.charts.push(chart(
        "log_redis",
        title,
        "instructions",
        Scale::Factors,
        vec![cost],
    ));
    let memory = in_turns(|size| bytes_of_log(size as usize));
    let redis = in_turns(|size| bytes(&format!("sliding_window_log {size}/d"), u64::from(size)));
    let series = vec![Series::new("memory", memory), Series::new("Redis", redis)];
    report.charts.push(chart(
        "log_bytes",
        "Bytes of a full log",
        "bytes",
        Scale::Factors,
        series,
    ));
}

fn in_turns(measure: impl Fn(u32) -> f64) -> Vec<(f64, f64)> {
    let points = SIZES
        .into_iter()
        .map(|size| (f64::from(size), measure(size)));
    points.collect()
}

/// Nanoseconds of a check that takes the oldest stamp's place in a full log.
fn in_memory(plan: Plan, size: u32) -> Spread {
    let clock = Clock::manual(Timestamp::from_secs(1_700_000_000));
    let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
    let (policy, key) = (policy(size), key());
    let mut check = |_| {
        clock.advance(DAY / size);
        assert!(poll_now(limiter.check(&policy, &key)).is_allowed());
    };
    (0..=size as usize).for_each(&mut check);
    plan.nanoseconds(plan.times() / 10, &mut [&mut check])[0]
}

fn in_redis() -> Vec<(f64, f64)> {
    let mut server = CountedServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::new(config(&server.server().url()));
        assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
        let mut points = Vec::new();
        for size in SIZES {
            let (policy, key) = (policy(size), key());
            let ask = async |cost: u32| {
                let hit = Hit::new(&policy, &key).cost(u64::from(cost));
                store.hit(hit).await.expect("the server decides");
            };
            ask(size - ROOM).await;
            let count = server.of_each(CALLS, async || ask(1).await).await;
            points.push((exact(size as usize), count));
        }
        points
    })
}

fn policy(size: u32) -> Policy {
    let limits = format!("sliding_window_log {size}/d");
    Policy::parse(&format!("log-{size}"), &limits).expect("limits that are well formed")
}

fn key() -> Key {
    Key::new("user:12345678").expect("a key that is not empty")
}
