//! What Prometheus scrapes.

use ratelimit_tests::redis::TestRedis;

use crate::server::{CHECK, EXPLAIN, REMAINING, Server};

#[tokio::test]
async fn checks_are_counted_by_algorithm_and_answer() {
    let server = Server::start(&["--application", "shop", "--policy", "one=fixed_window 1/d"]);
    for _ in 0..3 {
        server
            .get(&format!("{CHECK}?policy=one&key=secret-key"))
            .await;
    }

    let answer = server.get("/actuator/prometheus").await;

    assert!(
        answer
            .header("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
    let value = |allowed: &str| {
        let line = answer.body.lines().find(|line| {
            let parts = [
                "application=\"shop\"",
                "algorithm=\"fixed_window\"",
                "policy=\"one\"",
                &format!("allowed=\"{allowed}\""),
            ];
            line.starts_with("rate_limiter_requests_total{")
                && parts.iter().all(|part| line.contains(part))
        });
        line.and_then(|line| line.rsplit(' ').next())
            .map(str::to_owned)
    };
    assert_eq!(value("true").as_deref(), Some("1"), "{}", answer.body);
    assert_eq!(value("false").as_deref(), Some("2"));
    assert!(
        answer.body.contains("rate_limiter_check_seconds_bucket{"),
        "{}",
        answer.body
    );
    assert!(!answer.body.contains("secret-key"));
}

#[tokio::test]
async fn dry_runs_and_explanations_are_not_counted_as_requests() {
    let redis = TestRedis::start().await;
    let policy = ["--policy", "two=fixed_window 2/d"];
    let shared = ["--redis", redis.url(), "--redis-prefix", "looks"];
    for args in [policy.to_vec(), [policy.as_slice(), &shared].concat()] {
        let server = Server::start_connected(&args);
        server.get(&format!("{CHECK}?policy=two&key=k")).await;
        for path in [REMAINING, EXPLAIN] {
            for _ in 0..20 {
                server.get(&format!("{path}?policy=two&key=k")).await;
            }
        }

        let told = server.get("/actuator/prometheus").await.body;

        let checks = lines(&told, "rate_limiter_requests_total{", "policy=\"two\"");
        assert_eq!(checks.iter().sum::<u64>(), 1, "{told}");
        let timed = lines(&told, "rate_limiter_check_seconds_count{", "policy=\"two\"");
        assert_eq!(timed, [1], "{told}");
    }
}

/// The values of a metric's lines that hold `label`.
fn lines(told: &str, metric: &str, label: &str) -> Vec<u64> {
    told.lines()
        .filter(|line| line.starts_with(metric) && line.contains(label))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect()
}
