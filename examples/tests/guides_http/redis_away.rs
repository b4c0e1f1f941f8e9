//! The policies of the guides while Redis is away.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::connect_info::MockConnectInfo,
    http::{Request, Response},
    routing::post,
};
use ratelimit_axum::{Limiter, RateLimitLayer, RedisConfig, RedisStore, Registry};
use ratelimit_tests::page::Page;
use tower::ServiceExt as _;

/// The responses to requests under the policy of a page, whose Redis does not exist.
async fn responses(page: &str, policy: &str, requests: usize, length: u64) -> Vec<Response<Body>> {
    let page = Page::open(&format!("docs/guides/{page}.md"));
    let registry = Registry::from_toml(&page.first("toml")).expect("the policy");
    let config = RedisConfig::new("redis://127.0.0.1:1").expect("a URL");
    let store = RedisStore::new(config.timeout(Duration::from_secs(1)));
    let limit = RateLimitLayer::named(Limiter::new(store), &registry, policy).expect("its name");
    let app = Router::new()
        .route("/", post(async || "hello"))
        .layer(limit)
        .layer(MockConnectInfo(SocketAddr::from(([203, 0, 113, 7], 4711))));
    let mut responses = Vec::new();
    for _ in 0..requests {
        let request = Request::post("/").header("content-length", length);
        let request = request.header("x-estimated-tokens", length);
        let request = request.body(Body::empty()).expect("a request");
        let Ok(response) = app.clone().oneshot(request).await;
        responses.push(response);
    }
    responses
}

async fn statuses(page: &str, policy: &str, requests: usize, length: u64) -> Vec<u16> {
    let responses = responses(page, policy, requests, length).await;
    responses.iter().map(|it| it.status().as_u16()).collect()
}

#[tokio::test]
async fn login_is_closed_without_redis() {
    let responses = responses("login", "login", 1, 0).await;

    assert_eq!(responses[0].status(), 503);
    assert!(responses[0].headers().contains_key("retry-after"));
}

#[tokio::test]
async fn tiers_uploads_llm_and_websockets_are_counted_locally_without_redis() {
    assert_eq!(statuses("tiers", "api", 3, 0).await, [200, 200, 429]);
    assert_eq!(
        statuses("uploads", "upload", 2, 3_000_000).await,
        [200, 429]
    );
    // The third finds the budget of tokens spent.
    assert_eq!(statuses("llm-tokens", "llm", 3, 400).await, [200, 200, 429]);
    // Two responses that are not read hold two slots.
    assert_eq!(
        statuses("websockets", "sessions", 3, 0).await,
        [200, 200, 429]
    );
}
