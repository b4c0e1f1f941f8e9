//! Hits on one hot key that is prefetched.

use std::{sync::Arc, time::Duration};

use ratelimit_core::{Key, Limiter, Policy, RedisStore, Verdict};

use super::{
    Plan,
    denied_flood::script_calls,
    duration::exact,
    load::{LoadResult, TIMEOUT, config, run_paced_load, runtime},
};
use crate::{
    callgrind::CountedServer,
    far_link::FarLink,
    gate::redis_call,
    report::{Goal, Report, Row, Spread},
    server::RedisServer,
};

/// Hits a second of all tasks together, half of the limit.
const RATE: u32 = 50_000;
const LIMITS: &str = "token_bucket 100000/s";
const TASKS: u32 = 256;
/// Round trips in milliseconds, with a share that lasts for two of them.
const LINKS: [(u64, u32); 3] = [(0, 5), (20, 5), (80, 25)];
/// The shortest turn with many calls over the longest link. The first turn warms up and does not count.
const SHORTEST_TURN: Duration = Duration::from_secs(1);

pub(super) fn run(plan: Plan, report: &mut Report) {
    let mut calls = None;
    for (round_trip, share) in LINKS {
        let (p99, per_hit) = measure(plan, Duration::from_millis(round_trip), share);
        let what = format!(
            "Redis {round_trip} ms away, prefetch {share}%, {TASKS} tasks, {RATE} hits/s on one key, 99th percentile"
        );
        let row = Row::new(what, "ms", p99);
        report.rows.push(row.goal(Goal::AtMost(0.1)));
        calls.get_or_insert(per_hit);
    }
    // Under callgrind a server is too slow to be asked in time, so the instructions of a call are counted apart.
    let (per_hit, call) = (calls.expect("there are links"), call_cost());
    let what = format!("redis-server, a prefetched hit, {RATE} hits/s on one key");
    let row = Row::new(what, "instructions", per_hit.map(|calls| calls * call));
    report.rows.push(row.goal(Goal::AtMost(52.0)));
}

/// The 99th percentile in milliseconds, and the calls of the server for each hit.
fn measure(plan: Plan, round_trip: Duration, share: u32) -> (Spread, Spread) {
    let server = RedisServer::start(&[]);
    let link = (!round_trip.is_zero()).then(|| FarLink::start(server.port(), round_trip));
    let url = link.map_or_else(|| server.url(), |link| link.url());
    let runtime = runtime();
    let client = runtime.block_on(HotClient::connected(&url, share));
    runtime.block_on(client.hit_for(plan));
    let turns = (0..plan.rounds()).map(|_| {
        let before = script_calls(&server);
        let result = runtime.block_on(client.hit_for(plan));
        let calls = exact(script_calls(&server) - before);
        (result.p99, calls / exact(result.decisions))
    });
    let (p99, calls): (Vec<f64>, Vec<f64>) = turns.unzip();
    (Spread::of(&p99), Spread::of(&calls))
}

/// The server's instructions for one call, which is an ordinary hit.
fn call_cost() -> f64 {
    let mut server = CountedServer::start();
    runtime().block_on(async {
        let store = RedisStore::new(config(&server.server().url()));
        assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
        let policy = Policy::parse("counted", LIMITS).expect("limits that are well formed");
        redis_call(&mut server, &store, &policy).await
    })
}

/// A limiter, and its hot key.
struct HotClient {
    limiter: Limiter,
    policy: Policy,
    key: Key,
}

impl HotClient {
    async fn connected(url: &str, share: u32) -> Arc<HotClient> {
        let store = RedisStore::new(config(url));
        assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
        let policy = Policy::parse("bench", LIMITS).and_then(|policy| policy.with_prefetch(share));
        Arc::new(HotClient {
            limiter: Limiter::new(store),
            policy: policy.expect("limits that can be prefetched"),
            key: Key::new("hot").expect("a key that is not empty"),
        })
    }

    /// One turn of hits.
    async fn hit_for(self: &Arc<HotClient>, plan: Plan) -> LoadResult {
        let client = Arc::clone(self);
        let gap = Duration::from_secs(1) * TASKS / RATE;
        run_paced_load(TASKS, gap, plan.turn().max(SHORTEST_TURN), move || {
            Arc::clone(&client).hit()
        })
        .await
    }

    async fn hit(self: Arc<HotClient>) {
        let verdict = self.limiter.check(&self.policy, &self.key).await;
        assert!(matches!(verdict, Verdict::Checked(_)), "{verdict:?}");
    }
}
