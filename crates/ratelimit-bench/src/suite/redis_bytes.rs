//! Memory of a key in Redis.

use ratelimit_core::{
    Key, Policy, RedisStore,
    store::{Hit, Store as _},
};

use super::{
    Plan,
    duration::exact,
    load::{TIMEOUT, config},
};
use crate::{
    report::{Goal, Report, Row, Spread},
    server::RedisServer,
};

pub(super) fn run(_: Plan, report: &mut Report) {
    for (limits, cost, what, most) in [
        ("token_bucket 10/s burst 100", 1, "a token bucket", 110.0),
        (
            "sliding_window_log 1000/min",
            1_000,
            "a log of 1000",
            8_500.0,
        ),
    ] {
        let what = format!("Redis, {what} beside the key's name");
        let bytes = Spread::exactly(bytes(limits, cost));
        report
            .rows
            .push(Row::new(what, "bytes", bytes).goal(Goal::AtMost(most)));
    }
}

/// `MEMORY USAGE` of the only key, without the bytes of its name.
pub(super) fn bytes(limits: &str, cost: u64) -> f64 {
    let server = RedisServer::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::new(config(&server.url()));
        assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
        store.delete_probe_key().await.expect("the server answers");
        let policy = Policy::parse("bench", limits).expect("limits that are well formed");
        let key = Key::new("user:12345678").expect("a key that is not empty");
        let answer = store.hit(Hit::new(&policy, &key).cost(cost)).await;
        answer.expect("the server decides");
    });
    let name: String = server.ask(&["RANDOMKEY"]);
    let all: usize = server.ask(&["MEMORY", "USAGE", &name]);
    exact(all - name.len())
}
