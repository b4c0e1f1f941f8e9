//! How a decision grows with the limits of its policy.

use ratelimit_core::{
    Key, Limiter, Policy, RedisStore,
    store::{Hit, Store as _},
};

use super::{
    Plan,
    load::{TIMEOUT, config},
};
use crate::{
    callgrind::CountedServer,
    report::{Chart, Report, Scale, Series},
    workload::poll_now,
};

const MAX_LIMITS: u32 = 8;

pub(super) fn run(plan: Plan, report: &mut Report) {
    let chart = |name: &'static str, title: &str, y: &'static str, series: Series| Chart {
        name: name.into(),
        title: title.to_owned(),
        x: "limits of one policy".into(),
        y: y.into(),
        scale: Scale::Linear,
        series: vec![series],
    };
    let (title, y) = ("A check in memory, by the limits of its policy", "ns");
    report
        .charts
        .push(chart("limits_memory", title, y, in_memory(plan)));
    let (title, y) = (
        "A decision in Redis, by the limits of its policy",
        "instructions",
    );
    report
        .charts
        .push(chart("limits_redis", title, y, in_redis()));
}

fn in_memory(plan: Plan) -> Series {
    let points = (1..=MAX_LIMITS).map(|limits| {
        let (limiter, policy, key) = (Limiter::in_memory(), policy(limits), key());
        let mut check = |_| drop(poll_now(limiter.check(&policy, &key)));
        let spread = plan.nanoseconds(plan.times() / 4, &mut [&mut check])[0];
        (f64::from(limits), spread)
    });
    Series::of_spreads("this limiter", points.collect())
}

fn in_redis() -> Series {
    let mut server = CountedServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let points = runtime.expect("a runtime").block_on(async {
        let store = RedisStore::new(config(&server.server().url()));
        assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
        let mut points = Vec::new();
        for limits in 1..=MAX_LIMITS {
            let (policy, key) = (policy(limits), key());
            let ask = async || {
                let answer = store.hit(Hit::new(&policy, &key)).await;
                answer.expect("the server decides");
            };
            let count = server.of_a_script(ask).await;
            points.push((f64::from(limits), count));
        }
        points
    });
    Series::new("this limiter", points)
}

/// A policy of several token buckets, each with more budget than a run spends.
fn policy(limits: u32) -> Policy {
    let limits = (0..limits).map(|number| format!("token_bucket {}/s", 900_000_000 + number));
    let limits: Vec<String> = limits.collect();
    let name = format!("limits-{}", limits.len());
    Policy::parse(&name, &limits.join("; ")).expect("limits that are well formed")
}

fn key() -> Key {
    Key::new("user:12345678").expect("a key that is not empty")
}
