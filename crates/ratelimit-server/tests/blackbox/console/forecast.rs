//! When more permits of a key pass.

use std::{sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*};
use ratelimit_tests::redis::TestRedis;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    manual_server::{ManualServer, limit, run},
    server::{CHECK, EXPLAIN, OFFENDERS, Server},
};

const FORECAST: &str = "/console/api/forecast";

/// Limits, and the pauses and costs of hits on them.
type Case = (String, Vec<(u64, u64)>);

async fn check(server: &ManualServer, key: &str, permits: u64) -> bool {
    let query = format!("key={key}&permits={permits}");
    server.get(CHECK, &query).await["allowed"] == true
}

/// Each point has two keys with the same past, of which one comes a microsecond too early.
async fn holds(
    server: &ManualServer,
    (_, hits): &Case,
    points: usize,
) -> Result<(), TestCaseError> {
    for (pause, cost) in hits {
        server.clock.advance(Duration::from_micros(*pause));
        check(server, "seen", *cost).await;
        for point in 0..points {
            check(server, &format!("early{point}"), *cost).await;
            check(server, &format!("timely{point}"), *cost).await;
        }
    }
    let before = server.get(EXPLAIN, "key=seen").await;
    let forecast = server.get(FORECAST, "key=seen").await;
    prop_assert_eq!(before, server.get(EXPLAIN, "key=seen").await);

    let found = forecast["points"].as_array().unwrap().clone();
    prop_assert!(found.len() <= points, "{forecast}");
    let mut found: Vec<(u64, Option<u64>)> = found
        .iter()
        .map(|point| (point[0].as_u64().unwrap(), point[1].as_u64()))
        .collect();
    let limit = forecast["limit"].as_u64().unwrap();
    prop_assert!(found.iter().all(|(permits, _)| *permits <= limit));
    prop_assert!(found.iter().any(|(permits, _)| *permits == limit));
    prop_assert!(found.is_sorted(), "more permits pass later: {forecast}");
    let last = found.iter().filter_map(|(_, after)| *after).max();
    let up_to = forecast["upToMicros"].as_u64().unwrap();
    prop_assert!(up_to > 0 && last.is_none_or(|last| last == 0 || last == up_to));
    found.sort_by_key(|(_, after)| *after);
    let start = server.clock.now();
    for (point, (permits, after)) in found.into_iter().enumerate() {
        let Some(after) = after else {
            let never = server
                .get(EXPLAIN, &format!("key=seen&permits={permits}"))
                .await;
            prop_assert_eq!(&never["passesAfterMicros"], &Value::Null);
            continue;
        };
        if after > 0 {
            server.clock.set(start + Duration::from_micros(after - 1));
            let is_early = check(server, &format!("early{point}"), permits).await;
            prop_assert!(!is_early, "{permits} passes before {after}: {forecast}");
        }
        server.clock.set(start + Duration::from_micros(after));
        let is_timely = check(server, &format!("timely{point}"), permits).await;
        prop_assert!(is_timely, "{permits} does not pass at {after}: {forecast}");
    }
    Ok(())
}

fn case() -> impl Strategy<Value = Case> {
    let limits = vec(limit(1..9), 1..3).prop_map(|limits| limits.join("; "));
    (limits, vec((0_u64..3_000_000, 1_u64..4), 0..12))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forecast_in_memory_is_exact() {
    run(300, &case(), |case| {
        let server = ManualServer::in_memory(&case.0);
        Box::pin(async move { holds(&server, &case, 9).await })
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forecast_in_redis_is_exact() {
    let redis = Arc::new(TestRedis::start().await);
    run(30, &case(), |case| {
        let redis = Arc::clone(&redis);
        Box::pin(async move {
            let server = ManualServer::in_redis(&case.0, &redis).await;
            holds(&server, &case, 9).await
        })
    });
    redis.assert_every_key_expires();
}

#[tokio::test]
async fn a_slot_passes_at_the_forecast_at_the_latest() {
    let server = ManualServer::in_memory("concurrency 2 lease 10s");
    assert!(check(&server, "a", 1).await && check(&server, "a", 5).await);
    server.clock.advance(Duration::from_secs(3));

    let forecast = server.get(FORECAST, "key=a").await;

    assert_eq!(
        forecast,
        json!({"limit": 1, "upToMicros": 7_000_000, "points": [[1, 7_000_000]]})
    );
}

#[tokio::test]
async fn a_large_limit_has_24_points_at_most_and_that_of_the_cost() {
    let server = Server::start_admin(&["--policy", "p=1000000/d"]);

    let forecast = server
        .get(&format!("{FORECAST}?policy=p&key=a&permits=123457"))
        .await;
    let forecast = forecast.json();

    let points = forecast["points"].as_array().unwrap();
    assert!((20..=24).contains(&points.len()), "{forecast}");
    assert_eq!(points[0], json!([1, 0]));
    assert_eq!(points.last(), Some(&json!([1_000_000, 0])));
    assert!(points.contains(&json!([123_457, 0])), "{forecast}");
    assert_eq!(forecast["upToMicros"], 86_400_000_000_u64);
}

#[tokio::test]
async fn a_soft_throttle_passes_up_to_its_ceiling() {
    let dir = TempDir::new().unwrap();
    let server = Server::with_file(
        &dir,
        "admin-without-token: true\npolicy: {p: {limits: fixed_window 4/d, throttle: soft 50%}}\n",
    );

    let forecast = server
        .get(&format!("{FORECAST}?policy=p&key=a&permits=7"))
        .await
        .json();

    assert_eq!(forecast["limit"], 6);
    let points = &forecast["points"];
    assert_eq!(
        (&points[5], &points[6]),
        (&json!([6, 0]), &json!([7, null]))
    );
}

#[tokio::test]
async fn the_keys_of_a_forecast_are_those_of_explain() {
    let server =
        Server::start_admin(&["--policy", "p=fixed_window 9/d; fixed_window 4/d by tenant"]);
    for _ in 0..3 {
        let check = format!("{CHECK}?policy=p&key=a&keys.tenant=acme");
        assert_eq!(server.get(&check).await.status, 200);
    }

    let acme = server
        .get(&format!("{FORECAST}?policy=p&key=b&keys.tenant=acme"))
        .await;
    let other = server
        .get(&format!("{FORECAST}?policy=p&key=b&keys.tenant=other"))
        .await;

    let (acme, other) = (acme.json(), other.json());
    assert_eq!((&acme["limit"], &other["limit"]), (&json!(4), &json!(4)));
    assert_eq!(acme["points"][0], json!([1, 0]));
    assert!(acme["points"][1][1].as_u64() > Some(0), "{acme}");
    assert_eq!(other["points"][3], json!([4, 0]));
    server
        .get(&format!("{FORECAST}?policy=p&key=b"))
        .await
        .problem(400);
    server
        .get(&format!("{FORECAST}?policy=nobody&key=b"))
        .await
        .problem(400);
}

#[tokio::test]
async fn a_forecast_spends_and_counts_nothing() {
    let server = Server::start_admin(&["--policy", "p=fixed_window 3/d; penalty_box 1/d for 1d"]);
    for _ in 0..3 {
        let check = format!("{CHECK}?policy=p&key=a");
        assert_eq!(server.get(&check).await.json()["allowed"], true);
    }

    for _ in 0..20 {
        let forecast = server
            .get(&format!("{FORECAST}?policy=p&key=a"))
            .await
            .json();
        assert!(forecast["points"][0][1].as_u64() > Some(0), "{forecast}");
        let full = server
            .get(&format!("{FORECAST}?policy=p&key=b"))
            .await
            .json();
        assert_eq!(full["points"], json!([[1, 0], [2, 0], [3, 0]]));
    }

    let offenders = server.get(OFFENDERS).await.json();
    assert_eq!(offenders["policies"], json!({}));
    let explained = server
        .get(&format!("{EXPLAIN}?policy=p&key=a"))
        .await
        .json();
    assert_eq!(
        explained["limits"][1]["allowed"], true,
        "the penalty box counts no denial"
    );
    let metrics = server.get("/actuator/prometheus").await.body;
    let checks = metrics
        .lines()
        .filter(|line| line.starts_with("rate_limiter_requests_total{"));
    let checks: f64 = checks
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert!((checks - 3.0).abs() < f64::EPSILON, "{checks}");
}

#[tokio::test]
async fn without_redis_the_forecast_is_that_of_the_failure_mode() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("redis://{}", free.local_addr().unwrap());
    drop(free);
    for (mode, store, points) in [
        ("local", "local", json!([[1, 0], [2, 0]])),
        ("open", "none", json!([])),
        ("closed", "none", json!([])),
    ] {
        let server = Server::start_admin(&[
            "--redis",
            &nowhere,
            "--on-failure",
            mode,
            "--policy",
            "p=2/d",
        ]);

        let forecast = server
            .get(&format!("{FORECAST}?policy=p&key=a"))
            .await
            .json();

        assert_eq!(forecast["store"], store, "{mode}");
        assert_eq!(forecast["points"], points, "{mode}");
    }
}
