//! Where a layer can stand, and what it then limits.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State, connect_info::MockConnectInfo},
    handler::Handler as _,
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use bytes::Bytes;
use http::StatusCode;
use ratelimit_axum::{
    ClientKey, HttpPolicy, Key, KeyExtractor as _, Limiter, PathKey, Policy, RateLimitLayer,
    RouteKey, TierResolver,
};
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
async fn a_rule_in_a_nested_router_compares_the_path_as_it_was_sent() {
    let policy = |rule: fn(HttpPolicy) -> HttpPolicy| {
        let policy = HttpPolicy::parse("api", "1/h").expect("a limit");
        RateLimitLayer::new(Limiter::in_memory(), rule(policy))
    };
    let nested = |limit: RateLimitLayer| {
        let inner = Router::new()
            .route("/health", get(hello))
            .route("/admin/users", get(hello))
            .layer(limit);
        Router::new().nest("/api", inner)
    };
    let block = |rule| policy(rule);

    let by_sent = block(|api| api.with_block_rule("path:/api/admin/*".parse().expect("a rule")));
    let by_rest = block(|api| api.with_block_rule("path:/admin/*".parse().expect("a rule")));
    let exempt = policy(|api| api.with_exempt_rule("path:/health".parse().expect("a rule")));
    let whole = policy(|api| api.with_exempt_rule("path:/api/health".parse().expect("a rule")));

    assert_eq!(
        statuses(nested(by_sent), &["/api/admin/users"]).await,
        [403]
    );
    assert_eq!(
        statuses(nested(by_rest), &["/api/admin/users"]).await,
        [200]
    );
    let twice = ["/api/health", "/api/health"];
    assert_eq!(statuses(nested(exempt), &twice).await, [200, 429]);
    assert_eq!(statuses(nested(whole), &twice).await, [200, 200]);
}

#[tokio::test]
async fn a_path_key_in_a_nested_router_reads_the_path_as_it_was_sent() {
    let policy = Policy::parse("team", "1/h").expect("a limit");
    let limit = RateLimitLayer::new(Limiter::in_memory(), policy);
    let limit = limit.key_by(PathKey::new("/api/teams/{team}", "team"));
    let inner = Router::new()
        .route("/teams/{team}", get(hello))
        .layer(limit);
    let app = Router::new().nest("/api", inner);

    let asked = ["/api/teams/red", "/api/teams/blue", "/api/teams/red"];
    assert_eq!(statuses(app, &asked).await, [200, 200, 429]);
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
        let key = Key::ip([203, 0, 113, 7].into());
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

/// Looks the user of a token up, as a database would be asked.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get("authorization").cloned();
    tokio::task::yield_now().await;
    if let Some(token) = token {
        let user = Key::tagged("user", token).expect("a short token");
        request.extensions_mut().insert(user);
    }
    next.run(request).await
}

#[tokio::test]
async fn an_asynchronous_middleware_finds_the_key() {
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(RateLimitLayer::per_client("1/min").unwrap())
        .layer(middleware::from_fn(authenticate));
    let sent = async |token: &'static str| {
        let request = Request::get("/").header("authorization", token);
        let request = request.body(Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap().status()
    };

    assert_eq!(sent("alice").await, 200);
    assert_eq!(sent("alice").await, 429);
    assert_eq!(sent("bob").await, 200);
}

#[tokio::test]
async fn a_limit_by_global_needs_no_address_but_one_by_ip_does() {
    let limited = |limits| get(async || "hello").layer(RateLimitLayer::per_client(limits).unwrap());
    let app: Router = Router::new()
        .route("/global", limited("1/min by global"))
        .route("/ip", limited("1/min by ip"))
        .route("/both", limited("1/min by global; 1/min"));
    for (path, status) in [
        ("/global", 200),
        ("/global", 429),
        ("/ip", 500),
        ("/both", 500),
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
    }
}

/// A body that waits for data.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Frame>> {
        Poll::Pending
    }
}

type Frame = Result<http_body::Frame<Bytes>, Infallible>;

#[tokio::test]
async fn a_response_of_ones_own_has_to_be_complete() {
    let limit = || RateLimitLayer::per_client("1/min by global").unwrap();
    let hello = || get(async || "hello");
    let app: Router = Router::new()
        .route(
            "/text",
            hello().layer(limit().on_denied(|_| (StatusCode::IM_A_TEAPOT, "no"))),
        )
        .route(
            "/stream",
            hello().layer(limit().on_denied(|_| Body::new(Endless))),
        );
    for (path, status) in [("/text", 418), ("/stream", 429)] {
        for expected in [200, status] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), expected, "{path}");
        }
    }
}

#[tokio::test]
async fn a_tier_can_be_looked_up_asynchronously() {
    let policy = Policy::parse("api", "1/min").unwrap();
    let policy = policy.with_tier("pro", "2/min").unwrap();
    let resolver = TierResolver::new(async |key: Key| {
        tokio::task::yield_now().await;
        let is_pro = key.as_str().ends_with("acme");
        Ok::<_, String>(is_pro.then(|| "pro".to_owned()))
    });
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(RateLimitLayer::new(Limiter::in_memory(), policy).tier_async(resolver))
        .layer(middleware::from_fn(authenticate));
    for (user, status) in [
        ("acme", 200),
        ("acme", 200),
        ("acme", 429),
        ("bob", 200),
        ("bob", 429),
    ] {
        let request = Request::get("/").header("authorization", user);
        let request = request.body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{user}");
    }
}
