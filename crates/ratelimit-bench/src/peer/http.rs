//! Requests through routers: bare, behind our layer, behind another's.

use std::{net::SocketAddr, rc::Rc};

use actix_web::{App, dev::Service as _, test, web};
use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{Request, StatusCode},
    routing::get,
};
use ratelimit_axum::{DecisionSharing, HeaderStyle, RateLimitLayer};
use tower::{Service as _, layer::util::Identity};
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};

use crate::workload::{Work, poll_now};

const PLENTY: &str = "token_bucket 1000000/ms";
const LITTLE: &str = "token_bucket 1/d";
const PEER: ([u8; 4], u16) = ([203, 0, 113, 7], 4711);

/// Requests to an axum router.
///
/// # Panics
///
/// When a router answers what it should not.
pub fn axum_requests() -> Vec<Work> {
    vec![
        request("axum.bare", hello(), StatusCode::OK),
        request(
            "axum.idle_layer",
            hello().layer(Identity::new()),
            StatusCode::OK,
        ),
        request("axum.ours", ours(PLENTY, HeaderStyle::None), StatusCode::OK),
        request(
            "axum.ours_three_headers",
            ours(PLENTY, HeaderStyle::XRateLimit),
            StatusCode::OK,
        ),
        request(
            "axum.ours_three_headers_only",
            hello().layer(our_layer(PLENTY).share_decision(DecisionSharing::Off)),
            StatusCode::OK,
        ),
        request(
            "axum.ours_ietf",
            ours(PLENTY, HeaderStyle::Ietf),
            StatusCode::OK,
        ),
        request("axum.tower_governor", their_plain(), StatusCode::OK),
        request(
            "axum.tower_governor_headers",
            their_headers(),
            StatusCode::OK,
        ),
        denied_by_us(),
        denied_by_them(),
    ]
}

/// A request that our layer denies.
pub fn denied_by_us() -> Work {
    let router = ours(LITTLE, HeaderStyle::XRateLimit);
    denied("axum.ours_denied", router)
}

/// A request that `tower_governor` denies.
///
/// # Panics
///
/// Never: its settings are valid.
pub fn denied_by_them() -> Work {
    let mut config = GovernorConfigBuilder::default();
    let config = config
        .per_second(86_400)
        .burst_size(1)
        .use_headers()
        .finish();
    let layer = GovernorLayer::new(config.expect("valid settings"));
    denied("axum.tower_governor_denied", hello().layer(layer))
}

/// Requests to an actix-web app, bare and behind our middleware.
///
/// # Panics
///
/// When there is no runtime of actix-web.
pub async fn actix_requests() -> Vec<Work> {
    let hello = || web::get().to(async || "hello");
    let bare = test::init_service(App::new().route("/", hello())).await;
    let limit = ratelimit_actix::RateLimit::per_client(PLENTY).expect("well-formed limits");
    let limited = test::init_service(App::new().wrap(limit).route("/", hello())).await;
    let (bare, limited) = (Rc::new(bare), Rc::new(limited));
    let request = || {
        test::TestRequest::get()
            .peer_addr(SocketAddr::from(PEER))
            .to_request()
    };
    vec![
        Work::new("actix.bare", move || {
            assert!(poll_now(bare.call(request())).is_ok());
        }),
        Work::new("actix.ours_three_headers", move || {
            assert!(poll_now(limited.call(request())).is_ok());
        }),
    ]
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

fn ours(limits: &str, style: HeaderStyle) -> Router {
    hello().layer(our_layer(limits).headers(style))
}

/// The layer with its default settings: three headers, and the decision for the handler.
fn our_layer(limits: &str) -> RateLimitLayer {
    RateLimitLayer::per_client(limits).expect("well-formed limits")
}

fn their_plain() -> Router {
    let mut config = GovernorConfigBuilder::default();
    let config = config.per_nanosecond(1).burst_size(u32::MAX).finish();
    hello().layer(GovernorLayer::new(config.expect("valid settings")))
}

fn their_headers() -> Router {
    let mut config = GovernorConfigBuilder::default();
    let config = config
        .per_nanosecond(1)
        .burst_size(u32::MAX)
        .use_headers()
        .finish();
    hello().layer(GovernorLayer::new(config.expect("valid settings")))
}

fn denied(name: &str, router: Router) -> Work {
    let mut work = request(name, router.clone(), StatusCode::TOO_MANY_REQUESTS);
    // The router's clones share its budget, so one request uses it up.
    let mut first = request(name, router, StatusCode::OK);
    (first.once)();
    (work.once)();
    work
}

fn request(name: &str, router: Router, expected: StatusCode) -> Work {
    // As `axum::serve` does: routes are made once, and not again for each request.
    let mut router = router.with_state(());
    Work::new(name, move || {
        let mut request = Request::new(Body::empty());
        request
            .extensions_mut()
            .insert(ConnectInfo(SocketAddr::from(PEER)));
        let Ok(response) = poll_now(router.call(request));
        assert_eq!(response.status(), expected);
    })
}
