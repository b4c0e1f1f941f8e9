//! The response of a denial, for the client, and its log line, for the operator.

use axum::{Extension, Router, routing::get};
use ratelimit_axum::{ApiKey, RateLimitLayer};
use ratelimit_core::{Limiter, MemoryStore};

use crate::{
    client::{self, ask},
    log::Log,
    policies::{Site, With, policy},
    server::{BOTH, clock, serve_axum},
};

mod module {
    #[ratelimit_axum::rate_limit("1/h")]
    pub(super) async fn below() -> &'static str {
        "hello"
    }

    #[ratelimit_axum::rate_limit("1/h", scope = "checkout")]
    pub(super) async fn scoped() -> &'static str {
        "hello"
    }

    #[ratelimit_axum::rate_limit("1/h", headers = "ietf")]
    pub(super) async fn described() -> &'static str {
        "hello"
    }

    #[ratelimit_axum::rate_limit("2/h", scope = "checkout")]
    pub(super) async fn other_scoped() -> &'static str {
        "hello"
    }
}

fn router() -> Router {
    let limiter = Limiter::new(MemoryStore::new().clock(clock()));
    Router::new()
        .route("/below", get(module::below))
        .route("/described", get(module::described))
        .route("/scoped", get(module::scoped))
        .route("/other", get(module::other_scoped))
        .layer(Extension(limiter))
}

#[tokio::test]
async fn the_body_names_the_handler_with_its_module_or_its_scope() {
    let server = serve_axum(router()).await;

    for (path, name) in [
        ("/below", "adapters::denials::module::below"),
        ("/scoped", "checkout"),
    ] {
        assert_eq!(client::get(server, path).await.status, 200, "{path}");
        let denied = client::get(server, path).await;
        let told = format!("\"violated-policies\":[\"{name}\"]");
        assert!(denied.body.contains(&told), "{}", denied.body);
    }
}

#[tokio::test]
async fn the_header_fields_name_the_handler_as_the_body_does() {
    let server = serve_axum(router()).await;

    let answer = client::get(server, "/described").await;

    let described = "\"adapters::denials::module::described\";q=1;w=3600";
    assert_eq!(answer.field("ratelimit-policy"), Some(described));
    let report = answer.field("ratelimit").expect("a report");
    assert!(
        report.starts_with("\"adapters::denials::module::described\";r=0"),
        "{report}"
    );
}

#[tokio::test]
async fn requests_without_their_key_cause_one_warning() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let layer = RateLimitLayer::per_client("1/h")
        .expect("limits")
        .key_by(ApiKey);
    let server = serve_axum(Router::new().route("/", get(async || {})).layer(layer)).await;

    for _ in 0..5 {
        let rejected = client::get(server, "/").await;
        assert_eq!(rejected.status, 400);
        assert!(
            rejected.body.contains("\"code\":\"missing_key\""),
            "{}",
            rejected.body
        );
    }

    assert_eq!(log.holding("requests without a usable key"), 1);
    assert_eq!(log.holding("missing_key"), 1);
}

#[test]
fn a_limiter_in_memory_that_is_made_for_each_request_is_a_warning() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let shared = Limiter::in_memory();

    for _ in 0..1_000 {
        let policy = policy("1/h");
        let _layer = RateLimitLayer::new(shared.clone(), policy);
    }
    assert_eq!(log.holding("never denies"), 0);
    for _ in 0..2_000 {
        let _layer = RateLimitLayer::per_client("1/h").expect("limits");
    }
    assert_eq!(log.holding("never denies"), 1);
}

#[tokio::test]
async fn two_limits_of_one_scope_cause_one_warning() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let server = serve_axum(router()).await;

    for path in ["/scoped", "/other", "/scoped", "/other"] {
        client::get(server, path).await;
    }

    let told = "two policies of one name have different limits";
    assert_eq!(log.holding(told), 1);
    assert_eq!(log.holding("token_bucket 1/h and token_bucket 2/h"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_slot_is_worth_another_try_in_a_second() {
    for framework in BOTH {
        let site = Site::of("concurrency 1 lease 5min");
        let server = site.clone().serve(framework).await;
        let key = ratelimit_core::Key::ip("127.0.0.1".parse().expect("an address"));
        let held = policy("concurrency 1 lease 5min");
        let hit = ratelimit_core::store::Hit::new(held.policy(), &key);
        let (_, slot) = site.limiter.reserve(hit).await;
        assert!(slot.is_some());

        let denied = client::get(server, "/").await;

        assert_eq!(denied.status, 429, "{framework:?}");
        assert_eq!(denied.field("retry-after"), Some("1"), "{framework:?}");
        assert!(denied.body.contains("Try again in 1 second."));
    }
}

#[tokio::test]
async fn a_denial_is_one_line_with_the_kind_of_its_key() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let site = Site::of("1/h").with(With::KeyByUser);
    let server = serve_axum(
        Router::new()
            .route("/", get(async || "hello"))
            .layer(site.layer()),
    )
    .await;

    for status in [200, 429] {
        let answer = ask(server, "GET /", &["x-user: alice"]).await;
        assert_eq!(answer.status, status);
    }

    assert_eq!(log.holding("message=denied"), 1);
    assert_eq!(log.holding("key_kind=header"), 1);
    assert_eq!(log.holding("retry_after=3600s"), 1);
    assert_eq!(log.holding("alice"), 0);
}

#[tokio::test]
async fn an_unknown_tier_is_one_warning() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let tiered = policy("10/h").with_tier("pro", "20/h");
    let site = Site::new(tiered.expect("a limit")).with(With::TierByRequest);
    let server = serve_axum(
        Router::new()
            .route("/", get(async || "hello"))
            .layer(site.layer()),
    )
    .await;

    for plan in ["x-plan: pro", "x-plan: por", "x-plan: por"] {
        assert_eq!(ask(server, "GET /", &[plan]).await.status, 200);
    }

    assert_eq!(log.holding("there is no tier \"por\" among [\"pro\"]"), 1);
}
