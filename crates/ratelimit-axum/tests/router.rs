//! Where a layer can stand, and what it then limits.

use std::net::SocketAddr;

use axum::{
    Router,
    body::Body,
    extract::{State, connect_info::MockConnectInfo},
    handler::Handler as _,
    routing::get,
};
use http::Request;
use ratelimit_axum::{ClientKey, KeyExtractor as _, Limiter, Policy, RateLimitLayer, RouteKey};
use tower::ServiceExt as _;

async fn statuses(app: Router, paths: &[&str]) -> Vec<u16> {
    let peer = SocketAddr::from(([203, 0, 113, 7], 443));
    let app = app.layer(MockConnectInfo(peer));
    let mut statuses = Vec::new();
    for path in paths {
        let request = Request::get(*path).body(Body::empty());
        let response = app.clone().oneshot(request.expect("a request")).await;
        statuses.push(response.expect("infallible").status().as_u16());
    }
    statuses
}

fn two() -> RateLimitLayer {
    RateLimitLayer::per_client("2/h").expect("a limit")
}

async fn hello() -> &'static str {
    "hello"
}

#[tokio::test]
async fn a_layer_on_a_router_limits_its_routes_and_its_fallback() {
    let app = Router::new().route("/", get(hello)).layer(two());

    assert_eq!(
        statuses(app, &["/", "/missing", "/"]).await,
        [200, 404, 429]
    );
}

#[tokio::test]
async fn a_route_layer_leaves_the_fallback_alone() {
    let app = Router::new().route("/", get(hello)).route_layer(two());

    let asked = ["/missing", "/", "/missing", "/", "/", "/missing"];
    assert_eq!(statuses(app, &asked).await, [404, 200, 404, 200, 429, 404]);
}

#[tokio::test]
async fn a_layer_on_methods_or_a_handler_limits_only_those() {
    let app = Router::new()
        .route("/methods", get(hello).layer(two()))
        .route("/handler", get(hello.layer(two())))
        .route("/free", get(hello));

    let asked = ["/methods", "/methods", "/methods", "/handler", "/free"];
    assert_eq!(statuses(app, &asked).await, [200, 200, 429, 200, 200]);
}

#[tokio::test]
async fn a_nested_route_is_known_by_its_whole_pattern() {
    let each = ClientKey::new().and(RouteKey.or_shared("no route"));
    let users = || Router::new().route("/{id}", get(hello));
    let app = Router::new()
        .nest("/users", users())
        .nest("/groups", users())
        .layer(two().key_by(each));

    let asked = [
        "/users/1",
        "/users/2",
        "/users/3",
        "/groups/1",
        "/a",
        "/b",
        "/c",
    ];
    let told = statuses(app, &asked).await;
    assert_eq!(told, [200, 200, 429, 200, 404, 404, 429]);
}

#[tokio::test]
async fn a_limiter_in_the_state_shares_its_budgets_with_the_layer() {
    let limiter = Limiter::in_memory();
    let policy = Policy::parse("api", "2/h").expect("a policy");
    let reset = async |State(limiter): State<Limiter>| {
        let policy = Policy::parse("api", "2/h").expect("a policy");
        let key = ratelimit_axum::Key::ip([203, 0, 113, 7].into());
        limiter.reset(&policy, &key).await.expect("memory answers");
    };
    let app = Router::new()
        .route("/", get(hello))
        .route_layer(RateLimitLayer::new(limiter.clone(), policy))
        .route("/reset", get(reset))
        .with_state(limiter);

    let asked = ["/", "/", "/", "/reset", "/"];
    assert_eq!(statuses(app, &asked).await, [200, 200, 429, 200, 200]);
}
