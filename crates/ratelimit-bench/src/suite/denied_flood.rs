//! One client that goes on after it was denied.

use std::sync::Arc;

use ratelimit_core::{Key, Limiter, Policy, RedisStore};

use super::{
    Plan,
    duration::exact,
    load::{TIMEOUT, config, run_load, runtime},
};
use crate::{
    report::{Goal, Report, Row, Spread},
    server::RedisServer,
};

const TASKS: usize = 64;

pub(super) fn run(plan: Plan, report: &mut Report) {
    let server = RedisServer::start(&[]);
    let runtime = runtime();
    let share = runtime.block_on(async {
        let store = RedisStore::new(config(&server.url()));
        assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
        let flood = Flood {
            limiter: Limiter::new(store),
            policy: Policy::parse("bench", "1/h").expect("limits that are well formed"),
            key: Key::new("flood").expect("a key that is not empty"),
        };
        let flood = Arc::new(flood);
        flood.clone().ask().await;

        let before = script_calls(&server);
        let result = run_load(TASKS, plan.turn(), move |_| Arc::clone(&flood).ask()).await;
        let calls = script_calls(&server) - before;
        100.0 * exact(calls) / exact(result.decisions)
    });
    let row = Row::new(
        "Redis calls during a flood of one denied key",
        "% of requests",
        Spread::exactly(share),
    );
    report.rows.push(row.goal(Goal::AtMost(1.0)));
}

struct Flood {
    limiter: Limiter,
    policy: Policy,
    key: Key,
}

impl Flood {
    async fn ask(self: Arc<Flood>) {
        let _ = self.limiter.check(&self.policy, &self.key).await;
        // An answer from memory does not wait, and the others want their turn.
        tokio::task::yield_now().await;
    }
}

/// How many scripts the server has run.
pub(super) fn script_calls(server: &RedisServer) -> usize {
    let stats: String = server.ask(&["INFO", "commandstats"]);
    let calls = stats.lines().filter_map(|line| {
        let (name, numbers) = line.split_once(":calls=")?;
        let is_script = name.starts_with("cmdstat_eval") || name.starts_with("cmdstat_fcall");
        let calls = numbers.split(',').next()?.parse::<usize>().ok()?;
        is_script.then_some(calls)
    });
    calls.sum()
}
