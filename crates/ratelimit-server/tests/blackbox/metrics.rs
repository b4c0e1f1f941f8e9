//! What Prometheus scrapes.

use crate::server::{CHECK, Server};

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
