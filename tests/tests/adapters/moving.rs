//! The pages about moving here from `tower_governor`: the same requests through both layers.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo, routing::get};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use ratelimit_axum::RateLimitLayer;
use tower::ServiceExt as _;
use tower_governor::{
    GovernorLayer,
    governor::{GovernorConfig, GovernorConfigBuilder},
    key_extractor::SmartIpKeyExtractor,
};

struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

fn ours(limits: &str) -> Router {
    hello().layer(RateLimitLayer::per_client(limits).expect("a limit"))
}

/// Sends a request of the peer 203.0.113.7, with the address that it claims to forward.
async fn send(router: &Router, forwarded: &str) -> Response {
    let peer = SocketAddr::from(([203, 0, 113, 7], 4711));
    let request = Request::get("/")
        .header("x-forwarded-for", forwarded)
        .extension(ConnectInfo(peer))
        .body(Body::empty())
        .expect("a request");
    let response = router.clone().oneshot(request).await.expect("an answer");
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    Response {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}

/// The number of requests that pass before the first denial.
async fn burst(router: &Router) -> usize {
    for passed in 0..100 {
        if send(router, "").await.status == StatusCode::TOO_MANY_REQUESTS {
            return passed;
        }
    }
    panic!("a hundred requests pass");
}

/// Sends requests until one is denied.
async fn denied(router: &Router) -> Response {
    loop {
        let response = send(router, "").await;
        if response.status == StatusCode::TOO_MANY_REQUESTS {
            return response;
        }
    }
}

#[tokio::test]
async fn moving_keeps_the_burst_of_each_setting() {
    // The periods are long, so that nothing comes back while the test runs.
    let minute = GovernorConfigBuilder::default()
        .per_second(60)
        .burst_size(5)
        .finish()
        .expect("neither is zero");
    let hour = GovernorConfigBuilder::default()
        .period(Duration::from_secs(3600))
        .burst_size(3)
        .finish()
        .expect("neither is zero");

    for (before, after, most) in [
        (GovernorLayer::new(minute), "1/60s burst 5", 5),
        (GovernorLayer::new(hour), "1/3600s burst 3", 3),
        (
            GovernorLayer::new(GovernorConfig::secure()),
            "1/4s burst 2",
            2,
        ),
    ] {
        assert_eq!(burst(&hello().layer(before)).await, most, "{after}");
        assert_eq!(burst(&ours(after)).await, most, "{after}");
    }
}

#[tokio::test]
async fn moving_rounds_retry_after_up() {
    let config = GovernorConfigBuilder::default()
        .per_millisecond(300)
        .burst_size(1)
        .finish()
        .expect("neither is zero");

    let before = denied(&hello().layer(GovernorLayer::new(config))).await;
    let after = denied(&ours("1/300ms burst 1")).await;

    assert_eq!(before.headers["retry-after"], "0");
    assert_eq!(before.headers["x-ratelimit-after"], "0");
    assert_eq!(before.body, "Too Many Requests! Wait for 0s");
    assert_eq!(after.headers["retry-after"], "1");
    assert!(!after.headers.contains_key("x-ratelimit-after"));
    assert_eq!(after.headers["content-type"], "application/problem+json");
    for field in [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ] {
        assert!(!before.headers.contains_key(field), "{field}");
        assert!(after.headers.contains_key(field), "{field}");
    }
}

#[tokio::test]
async fn moving_ends_budgets_that_a_client_chooses_by_a_header() {
    let config = GovernorConfigBuilder::default()
        .per_second(60)
        .burst_size(2)
        .key_extractor(SmartIpKeyExtractor)
        .finish()
        .expect("neither is zero");
    let before = hello().layer(GovernorLayer::new(config));
    let after = ours("1/60s burst 2");

    let mut passed = [0, 0];
    for number in 1..=20 {
        let forwarded = format!("198.51.100.{number}");
        for (router, passed) in [&before, &after].into_iter().zip(&mut passed) {
            *passed += usize::from(send(router, &forwarded).await.status == StatusCode::OK);
        }
    }

    assert_eq!(passed, [20, 2]);
}

#[test]
fn moving_every_limit_on_the_pages_is_read() {
    let pages = [
        include_str!("../../../docs/move/tower_governor.md"),
        include_str!("../../../docs/move/actix-governor.md"),
        include_str!("../../../docs/move/others.md"),
    ];
    let algorithms = [
        "fixed_window ",
        "leaky_bucket ",
        "sliding_window_log ",
        "sliding_window_counter ",
    ];
    let mut read = 0;
    for span in pages
        .iter()
        .flat_map(|page| page.split('`').skip(1).step_by(2))
    {
        let is_rate = span.split_once('/').is_some_and(|(number, period)| {
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            is_number && !period.is_empty() && !span.contains(['{', '\n'])
        });
        if is_rate || algorithms.iter().any(|name| span.starts_with(name)) {
            ratelimit_core::Policy::parse("page", span)
                .unwrap_or_else(|why| panic!("{span}: {why}"));
            read += 1;
        }
    }
    assert!(read >= 25, "{read} limits");
}
