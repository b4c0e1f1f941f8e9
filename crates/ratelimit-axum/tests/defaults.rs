//! The defaults of a process, which layers and attributes share.
//!
//! They can be set once per process, so this file has one test.

use std::net::SocketAddr;

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::connect_info::MockConnectInfo,
    http::{Request, StatusCode, request::Parts},
    routing::{get, post},
};
use ratelimit_axum::{
    ClientKey, Defaults, FailureMode, HeaderKey, HeaderStyle, Limiter, Policy, RateLimitLayer,
    Registry, Rejection, TrustedProxies, rate_limit,
    ratelimit_http::{middleware::SetDefaultsError, policy::HttpPolicy},
    set_global_defaults,
};
use ratelimit_core::{RedisConfig, RedisStore};
use tower::ServiceExt as _;

#[rate_limit("1/min")]
async fn plain() -> &'static str {
    "hello"
}

#[rate_limit("1/min by ip", key = "header:x-user")]
async fn by_user() -> &'static str {
    "hello"
}

#[rate_limit("1/min", headers = "ratelimit", on_denied = own_words)]
async fn own() -> &'static str {
    "hello"
}

#[rate_limit("1/min", on_failure = "open")]
async fn open() -> &'static str {
    "hello"
}

#[rate_limit(policy = "closed", on_failure = "open", charge_on = [500])]
async fn named_closed() -> &'static str {
    "hello"
}

#[rate_limit(policy = "tiers", on_failure = "open")]
async fn named_open() -> &'static str {
    "hello"
}

#[rate_limit(policy = "tiers", tier = tier)]
async fn tiers() -> &'static str {
    "hello"
}

/// Adds two numbers.
#[rate_limit("1/min", unlimited = add_unlimited)]
async fn add(Extension(one): Extension<u64>, Json(other): Json<u64>) -> Json<u64> {
    Json(one + other)
}

fn own_words(rejection: &Rejection<'_>) -> (StatusCode, Json<String>) {
    let name = rejection.policy.name().to_owned();
    (rejection.response().status(), Json(name))
}

fn tier(request: &Parts) -> Option<String> {
    request.headers.get("x-tier")?.to_str().ok().map(Into::into)
}

fn unreachable_store() -> Limiter {
    let redis = RedisConfig::new("redis://127.0.0.1:1").expect("an address");
    Limiter::new(RedisStore::new(redis))
}

fn registry() -> Registry {
    let tiers = Policy::parse("tiers", "1/min").and_then(|policy| policy.with_tier("pro", "2/min"));
    let closed = Policy::parse("closed", "1/min").expect("a policy");
    let closed = HttpPolicy::from(closed.with_failure_mode(FailureMode::Closed));
    let closed = closed.with_charge_on("2xx".parse().expect("statuses"));
    Registry::from_policies([tiers.expect("a policy").into(), closed])
}

/// Handlers whose requests carry a limiter that cannot decide, and one that can.
fn handlers_without_store() -> Router {
    let failing = |mode| Extension(unreachable_store().failure_mode(mode));
    let undecided = || Extension(unreachable_store());
    let (open_mode, closed_mode) = (FailureMode::Open, FailureMode::Closed);
    Router::new()
        .route("/open", get(open).layer(undecided()))
        .route("/closed", get(plain).layer(undecided()))
        .route("/carried-open", get(plain).layer(failing(open_mode)))
        .route("/carried-closed", get(open).layer(failing(closed_mode)))
        .route("/named-open", get(named_open).layer(undecided()))
        .route("/named-closed", get(named_closed).layer(undecided()))
        .route("/named-charged", get(named_closed))
}

/// The status, the names of the rate limit fields, and the body.
async fn sent(app: &Router, path: &str, fields: &[(&str, &str)]) -> (u16, String, String) {
    let mut request = Request::get(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).expect("a request");
    let response = app.clone().oneshot(request).await.expect("infallible");
    let names = response.headers().keys();
    let names = names.filter(|name| name.as_str().contains("ratelimit"));
    let names = names.map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1000).await;
    let body = String::from_utf8(body.expect("a short body").to_vec());
    (status, names, body.expect("text"))
}

#[tokio::test]
async fn layers_and_handlers_take_the_defaults_and_their_own_settings_win() {
    let proxies = TrustedProxies::parse(["10.0.0.0/8"]).expect("a network");
    let defaults = || {
        Defaults::new()
            .limiter(Limiter::in_memory())
            .client_key(ClientKey::behind(proxies.clone()))
            .headers(HeaderStyle::Ietf)
            .on_denied(|_| (StatusCode::TOO_MANY_REQUESTS, "slow down"))
            .failure_mode(FailureMode::Closed)
    };
    set_global_defaults(defaults()).expect("set once");
    assert_eq!(
        set_global_defaults(defaults()),
        Err(SetDefaultsError::Already)
    );
    let policy = |limits| Policy::parse("layer", limits).expect("a policy");
    let layer = |limiter, limits| RateLimitLayer::new(limiter, policy(limits));
    let hello = || get(async || "hello");
    let tiered = policy("1/min").with_tier("pro", "2/min").expect("a tier");
    let app = Router::new()
        .route("/plain", get(plain))
        .route("/by-user", get(by_user))
        .route("/own", get(own))
        .route("/tiers", get(tiers))
        .route("/add", post(add))
        .merge(handlers_without_store())
        .layer(Extension(registry()))
        .route(
            "/layer",
            hello().layer(layer(Limiter::in_memory(), "1/min")),
        )
        .route(
            "/layer-closed",
            hello().layer(layer(unreachable_store(), "1/min")),
        )
        .route(
            "/layer-open",
            hello().layer(layer(
                unreachable_store().failure_mode(FailureMode::Open),
                "1/min",
            )),
        )
        .route(
            "/layer-own",
            hello().layer(
                RateLimitLayer::new(Limiter::in_memory(), tiered)
                    .key_by(HeaderKey::new(http::HeaderName::from_static("x-user")))
                    .headers(HeaderStyle::XRateLimit)
                    .on_denied(|rejection| (rejection.response(),)),
            ),
        )
        .layer(MockConnectInfo(SocketAddr::from(([10, 0, 0, 1], 443))));

    let alice = ("x-forwarded-for", "203.0.113.7");
    let bob = ("x-forwarded-for", "203.0.113.8");
    for path in ["/plain", "/layer"] {
        let ietf = "ratelimit ratelimit-policy";
        let (status, names, _) = sent(&app, path, &[alice]).await;
        assert_eq!((status, names.as_str()), (200, ietf), "{path}");
        let (status, names, body) = sent(&app, path, &[alice]).await;
        assert_eq!((status, names.as_str()), (429, ietf), "{path}");
        assert_eq!(body, "slow down", "{path}");
        assert_eq!(sent(&app, path, &[bob]).await.0, 200, "{path}: by proxy");
    }
    // The key is the attribute's own; the address for `by ip` comes from the default client.
    let user = ("x-user", "1");
    assert_eq!(sent(&app, "/by-user", &[user, alice]).await.0, 200);
    assert_eq!(sent(&app, "/by-user", &[user, bob]).await.0, 200);
    assert_eq!(sent(&app, "/by-user", &[user, bob]).await.0, 429);

    assert_eq!(sent(&app, "/own", &[alice]).await.0, 200);
    let (status, names, body) = sent(&app, "/own", &[alice]).await;
    let delta = "ratelimit-limit ratelimit-remaining ratelimit-reset";
    assert_eq!((status, names.as_str()), (429, delta));
    assert!(body.ends_with("own\""), "{body}");

    for (path, status) in [
        ("/open", 200),
        ("/closed", 503),
        ("/carried-open", 200),
        ("/carried-closed", 503),
        ("/named-open", 200),
        ("/named-closed", 503),
        ("/named-charged", 200),
        ("/named-charged", 429),
        ("/layer-open", 200),
        ("/layer-closed", 503),
    ] {
        assert_eq!(sent(&app, path, &[alice]).await.0, status, "{path}");
    }

    let pro = ("x-tier", "pro");
    for status in [200, 200, 429] {
        assert_eq!(sent(&app, "/tiers", &[alice, pro]).await.0, status);
    }

    assert_eq!(sent(&app, "/layer-own", &[user, alice]).await.0, 200);
    let (status, names, body) = sent(&app, "/layer-own", &[user, bob]).await;
    assert_eq!(status, 429);
    assert!(names.starts_with("x-ratelimit-limit"), "{names}");
    assert!(body.contains("quota-exceeded"), "{body}");

    // The handler itself can be called, without a request.
    for _ in 0..3 {
        let Json(sum) = add_unlimited(Extension(1), Json(2)).await;
        assert_eq!(sum, 3);
    }
}
