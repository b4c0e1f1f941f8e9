//! What is foretold is what comes: the same server inside this process, on a clock that is moved.

use std::{sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*};
use ratelimit_tests::redis::TestRedis;
use serde_json::Value;

use crate::{
    manual_server::{ManualServer, limit, run},
    server::{CHECK, EXPLAIN, REMAINING},
};

/// A policy, the pauses and costs of hits on it, and the cost that is asked about.
type Case = (String, Vec<(u64, u64)>, u64);

async fn ask(server: &ManualServer, path: &str, key: &str, permits: u64) -> Value {
    server
        .get(path, &format!("key={key}&permits={permits}"))
        .await
}

/// The same past for two keys, of which one comes a microsecond too early.
async fn holds(server: &ManualServer, (_, hits, cost): &Case) -> Result<(), TestCaseError> {
    for (pause, cost) in hits {
        server.clock.advance(Duration::from_micros(*pause));
        for key in ["early", "timely"] {
            ask(server, CHECK, key, *cost).await;
        }
    }
    let foretold = ask(server, EXPLAIN, "timely", *cost).await;
    let look = ask(server, REMAINING, "timely", *cost).await;
    let wait = foretold["passesAfterMicros"].as_u64();
    prop_assert_eq!(&look["allowed"], &foretold["allowed"]);
    prop_assert_eq!(
        look["retryAfterSeconds"].as_u64(),
        wait.map(|micros| micros.div_ceil(1_000_000))
    );
    let Some(wait) = wait else {
        let never = ask(server, CHECK, "timely", *cost).await;
        prop_assert_eq!(&never["retryAfterSeconds"], &Value::Null);
        return Ok(());
    };
    let is_now = wait == 0;
    prop_assert_eq!(foretold["allowed"].as_bool(), Some(is_now));
    if !is_now {
        server.clock.advance(Duration::from_micros(wait - 1));
        let early = ask(server, CHECK, "early", *cost).await;
        prop_assert_eq!(&early["allowed"], false, "{} {}", foretold, early);
        server.clock.advance(Duration::from_micros(1));
    }
    let timely = ask(server, CHECK, "timely", *cost).await;
    prop_assert_eq!(&timely["allowed"], true, "{} {}", foretold, timely);
    Ok(())
}

fn case() -> impl Strategy<Value = Case> {
    let limits = vec(limit(1..8), 1..4).prop_map(|limits| limits.join("; "));
    let hits = vec((0_u64..3_000_000, 1_u64..4), 0..30);
    (limits, hits, 1_u64..9)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_in_memory_predicts_the_next_decision() {
    run(1_000, &case(), |case| {
        let server = ManualServer::in_memory(&case.0);
        Box::pin(async move { holds(&server, &case).await })
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_in_redis_predicts_the_next_decision() {
    let redis = Arc::new(TestRedis::start().await);
    run(200, &case(), |case| {
        let redis = Arc::clone(&redis);
        Box::pin(async move {
            let server = ManualServer::in_redis(&case.0, &redis).await;
            holds(&server, &case).await
        })
    });
    redis.assert_every_key_expires();
}
