//! Checks a second over links to a Redis in another region.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ratelimit_core::{Key, Limiter, Policy, RedisConfig, RedisStore, Verdict};

use super::{
    Plan,
    duration::exact,
    load::{KEYS, TIMEOUT, run_load, runtime},
};
use crate::{
    far_link::FarLink,
    report::{Goal, Report, Row, Spread},
    server::RedisServer,
};

const ROUND_TRIPS_MS: [u64; 2] = [20, 80];
/// The settings for another region, which the rows name.
const FAR_TIMEOUT: Duration = Duration::from_millis(250);
const IN_FLIGHT: usize = 8_192;
/// The shortest turn with many round trips of the longer link.
const SHORTEST_TURN: Duration = Duration::from_secs(1);

pub(super) fn run(plan: Plan, report: &mut Report) {
    for round_trip in ROUND_TRIPS_MS {
        let (per_second, unchecked) = measure(plan, Duration::from_millis(round_trip));
        let what = format!("Redis {round_trip} ms away, time-out 250 ms, {IN_FLIGHT} in flight");
        let checks = Row::new(what.clone(), "checks/s", per_second);
        report.rows.push(checks.goal(Goal::AtLeast(50_000.0)));
        let what = format!("{what}, left to the failure mode");
        let unchecked = Row::new(what, "%", unchecked);
        report.rows.push(unchecked.goal(Goal::AtMost(1.0)));
    }
}

/// Checks a second that Redis decided, and the percentage of all that it did not.
fn measure(plan: Plan, round_trip: Duration) -> (Spread, Spread) {
    let server = RedisServer::start(&[]);
    let link = FarLink::start(server.port(), round_trip);
    let runtime = runtime();
    let client = Arc::new(runtime.block_on(FarClient::connected(&link)));
    let turns = (0..plan.rounds()).map(|_| {
        let asking = Arc::clone(&client);
        let load = run_load(IN_FLIGHT, plan.turn().max(SHORTEST_TURN), move |key| {
            Arc::clone(&asking).ask(key)
        });
        let result = runtime.block_on(load);
        let unchecked = exact(client.unchecked.swap(0, Ordering::Relaxed));
        let share = unchecked / exact(result.decisions);
        (result.per_second * (1.0 - share), 100.0 * share)
    });
    let (per_second, unchecked): (Vec<f64>, Vec<f64>) = turns.unzip();
    (Spread::of(&per_second), Spread::of(&unchecked))
}

/// A limiter with the settings for another region.
struct FarClient {
    limiter: Limiter,
    policy: Policy,
    keys: Vec<Key>,
    unchecked: AtomicUsize,
}

impl FarClient {
    async fn connected(link: &FarLink) -> FarClient {
        let config = RedisConfig::new(&link.url()).expect("an address of Redis");
        let config = config.connect_timeout(TIMEOUT).max_in_flight(IN_FLIGHT);
        let store = RedisStore::new(config.timeout(FAR_TIMEOUT));
        assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
        let limits = "token_bucket 1000000/s burst 100000000";
        let key = |number| Key::new(format!("user:{number:08}")).expect("a key that is not empty");
        FarClient {
            limiter: Limiter::new(store),
            policy: Policy::parse("bench", limits).expect("limits that are well formed"),
            keys: (0..KEYS).map(key).collect(),
            unchecked: AtomicUsize::new(0),
        }
    }

    async fn ask(self: Arc<FarClient>, key: usize) {
        let verdict = self.limiter.check(&self.policy, &self.keys[key]).await;
        if !matches!(verdict, Verdict::Checked(_)) {
            self.unchecked.fetch_add(1, Ordering::Relaxed);
        }
    }
}
