//! Limited handlers: what they take, what they answer, and `#[debug_handler]` beside the limit.

use std::net::SocketAddr;

use axum::{
    Json, Router,
    body::Body,
    debug_handler,
    extract::{Path, State, connect_info::MockConnectInfo},
    http::{Method, StatusCode},
    response::IntoResponse,
    routing::{get, post},
};
use http::{Request, Response};
use ratelimit_axum::{
    ApiKey, ClientKey, KeyExtractor as _, Limiter, Policy, RateLimitLayer, Registry, Rejection,
    rate_limit,
};
use tower::ServiceExt as _;

#[derive(Clone)]
struct App {
    name: &'static str,
}

#[debug_handler]
#[rate_limit("2/min")]
async fn above(State(app): State<App>, Path(id): Path<u8>, Json(number): Json<u64>) -> String {
    format!("{} {id} {number}", app.name)
}

#[rate_limit("2/min")]
#[debug_handler]
async fn below(State(app): State<App>, Path(id): Path<u8>, Json(number): Json<u64>) -> String {
    format!("{} {id} {number}", app.name)
}

#[rate_limit("2/min")]
#[debug_handler]
async fn nothing() -> &'static str {
    "hello"
}

#[debug_handler]
#[rate_limit("2/min")]
async fn one(body: String) -> String {
    body
}

#[rate_limit("2/min")]
#[rustfmt::skip]
#[allow(clippy::too_many_arguments)]
async fn sixteen(
    _: Method, _: Method, _: Method, _: Method, _: Method, _: Method, _: Method, _: Method,
    _: Method, _: Method, _: Method, _: Method, _: Method, _: Method, _: Method, body: String,
) -> String {
    body
}

#[rate_limit("2/min")]
async fn generic<T: Number>(Path(id): Path<u8>) -> String {
    T::of(id)
}

struct Shop;

impl Shop {
    #[rate_limit("2/min", scope = "shop")]
    async fn sell(Path(id): Path<u8>) -> String {
        id.to_string()
    }
}

trait Number: 'static {
    fn of(id: u8) -> String;
}

impl Number for u8 {
    fn of(id: u8) -> String {
        id.to_string()
    }
}

/// An application whose items have the names that an expansion might use.
mod names {
    use axum::{
        Json,
        http::{StatusCode, request::Parts},
    };
    use ratelimit_axum::{Key, KeyError, Rejection, rate_limit};

    type Marker = String;
    const LIMIT: u64 = 2;
    const DECLARED: u64 = 3;

    fn cost(_: &Parts) -> u64 {
        LIMIT
    }

    fn request(_: &Parts) -> u64 {
        DECLARED
    }

    fn limit(_: &Parts) -> Result<Key, KeyError> {
        Ok(Key::new("one")?)
    }

    fn handler_limit(_: &Parts) -> bool {
        false
    }

    fn tier(_: &Parts) -> Option<String> {
        None
    }

    fn denied(_: &Rejection<'_>) -> StatusCode {
        StatusCode::IM_A_TEAPOT
    }

    fn rejection(rejection: &Rejection<'_>) -> StatusCode {
        denied(rejection)
    }

    #[rate_limit("10/min", cost = cost, key = limit, on_denied = denied)]
    pub(super) async fn limited(Json(argument_0): Json<Marker>) -> String {
        format!("{argument_0} {LIMIT}")
    }

    #[rate_limit("10/min", cost = request, exempt_when = handler_limit, on_denied = rejection)]
    pub(super) async fn handler(Json(limited): Json<Marker>) -> String {
        format!("{limited} {LIMIT}")
    }

    #[rate_limit("10/min", cost = LIMIT + DECLARED, on_denied = denied)]
    pub(super) async fn argument_0(Json(request): Json<Marker>) -> String {
        format!("{request} {LIMIT}")
    }

    #[rate_limit(policy = "login", cost = DECLARED, tier = tier, on_denied = denied)]
    pub(super) async fn payload(Json(payload): Json<Marker>) -> String {
        format!("{payload} {LIMIT}")
    }
}

/// Handlers whose keys are secrets.
mod secret {
    use ratelimit_axum::{ApiKey, rate_limit};

    #[rate_limit("1/h", scope = "header", key = "header:x-api-key")]
    pub(super) async fn header() {}

    #[rate_limit("1/h", scope = "name", key = "api-key")]
    pub(super) async fn name() {}

    #[rate_limit("1/h", scope = "extractor", key = ApiKey)]
    pub(super) async fn extractor() {}

    #[rate_limit("9/h; 1/h by header:x-api-key", scope = "by")]
    pub(super) async fn by() {}
}

/// Two handlers of one name in two functions.
fn twins() -> Router<App> {
    fn first() -> Router<App> {
        #[rate_limit("1/h")]
        async fn twin() {}
        Router::new().route("/first", get(twin))
    }
    fn second() -> Router<App> {
        #[rate_limit("1/h")]
        async fn twin() {}
        Router::new().route("/second", get(twin))
    }
    first().merge(second())
}

#[rate_limit("2/min")]
async fn conditional(
    method: Method,
    #[cfg(any())] missing: Missing,
    #[cfg(not(any()))]
    #[allow(unused_variables)]
    uri: http::Uri,
) -> String {
    format!("{method} {uri}")
}

fn borrowing(rejection: &Rejection<'_>) -> impl IntoResponse {
    (StatusCode::IM_A_TEAPOT, rejection.policy.name().to_owned())
}

#[rate_limit("1/h", scope = "teapot", on_denied = borrowing)]
async fn teapot() {}

fn app() -> Router {
    let peer = SocketAddr::from(([203, 0, 113, 7], 443));
    let login = Policy::parse("login", "10/min").expect("a policy");
    Router::new()
        .route("/above/{id}", post(above))
        .route("/below/{id}", post(below))
        .route("/nothing", get(nothing))
        .route("/one", post(one))
        .route("/sixteen", post(sixteen))
        .route("/generic/{id}", get(generic::<u8>))
        .route("/sell/{id}", get(Shop::sell))
        .route("/limited", post(names::limited))
        .route("/handler", post(names::handler))
        .route("/argument_0", post(names::argument_0))
        .route("/payload", post(names::payload))
        .route("/conditional", get(conditional))
        .route("/teapot", get(teapot))
        .merge(twins())
        .with_state(App { name: "shop" })
        .layer(axum::Extension(Limiter::in_memory()))
        .layer(axum::Extension(Registry::from_policies([login])))
        .layer(MockConnectInfo(peer))
}

async fn asked(app: &Router, request: &str, body: &'static str) -> (StatusCode, String, String) {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let request = request.body(Body::from(body)).expect("a request");
    let response = app.clone().oneshot(request).await.expect("infallible");
    let left = remaining(&response);
    let body = axum::body::to_bytes(response.into_body(), 1000).await;
    let body = String::from_utf8(body.expect("a short body").to_vec());
    (left.0, left.1, body.expect("text"))
}

fn remaining(response: &Response<Body>) -> (StatusCode, String) {
    let left = response.headers().get("x-ratelimit-remaining");
    let left = left.map(|left| left.to_str().expect("a number").to_owned());
    (response.status(), left.unwrap_or_default())
}

#[tokio::test]
async fn handlers_of_all_shapes_are_limited() {
    let app = app();
    for (request, body, answer) in [
        ("POST /above/7", "5", "shop 7 5"),
        ("POST /below/7", "5", "shop 7 5"),
        ("GET /nothing", "", "hello"),
        ("POST /one", "body", "body"),
        ("POST /sixteen", "body", "body"),
        ("GET /generic/7", "", "7"),
        ("GET /sell/7", "", "7"),
        ("GET /conditional", "", "GET /conditional"),
    ] {
        for (status, left) in [(200, "1"), (200, "0"), (429, "0")] {
            let (found, told, text) = asked(&app, request, body).await;
            assert_eq!((found.as_u16(), told.as_str()), (status, left), "{request}");
            assert!(status == 429 || text == answer, "{request}: {text}");
        }
    }
}

#[tokio::test]
async fn the_response_of_a_failing_extractor_has_the_headers() {
    for handler in ["above", "below"] {
        let app = app();
        let bad_path = format!("POST /{handler}/seven");
        let bad_body = format!("POST /{handler}/7");

        let path = asked(&app, &bad_path, "5").await;
        let body = asked(&app, &bad_body, "five").await;
        let denied = asked(&app, &bad_body, "five").await;

        assert_eq!((path.0.as_u16(), path.1.as_str()), (400, "1"));
        assert_eq!((body.0.as_u16(), body.1.as_str()), (400, "0"));
        assert_eq!((denied.0.as_u16(), denied.1.as_str()), (429, "0"));
    }
}

#[tokio::test]
async fn items_of_the_application_keep_their_names_in_a_limited_handler() {
    let app = app();
    for (path, cost) in [
        ("/limited", 2),
        ("/handler", 3),
        ("/argument_0", 5),
        ("/payload", 3),
    ] {
        let request = format!("POST {path}");
        for hit in 1..=10 / cost {
            let left = (10 - hit * cost).to_string();
            let expected = (StatusCode::OK, left, "body 2".to_owned());
            assert_eq!(asked(&app, &request, "\"body\"").await, expected, "{path}");
        }
        let (status, ..) = asked(&app, &request, "\"body\"").await;
        assert_eq!(status, StatusCode::IM_A_TEAPOT, "{path}");
    }
}

#[tokio::test]
async fn no_key_of_a_handler_shows_a_secret() {
    let limiter = Limiter::in_memory();
    let app = Router::new()
        .route("/header", get(secret::header))
        .route("/name", get(secret::name))
        .route("/extractor", get(secret::extractor))
        .route("/by", get(secret::by))
        .layer(axum::Extension(limiter.clone()))
        .layer(MockConnectInfo(SocketAddr::from(([203, 0, 113, 7], 443))));
    for policy in ["header", "name", "extractor", "by"] {
        for expected in [200, 429] {
            let request = Request::builder().uri(format!("/{policy}"));
            let request = request.header("x-api-key", "s3cr3t").body(Body::empty());
            let response = app.clone().oneshot(request.expect("a request")).await;
            assert_eq!(response.expect("infallible").status(), expected, "{policy}");
        }
        let worst = limiter.offenders(policy, 1);
        assert!(worst[0].key.as_str().starts_with("sha256~"), "{worst:?}");
    }
}

#[tokio::test]
async fn handlers_of_one_name_have_separate_budgets() {
    let app = app();
    for path in ["/first", "/second"] {
        for expected in [200, 429] {
            let (status, ..) = asked(&app, &format!("GET {path}"), "").await;
            assert_eq!(status.as_u16(), expected, "{path}");
        }
    }
}

#[tokio::test]
async fn a_denial_names_the_policy_as_metrics_do() {
    let app = app();
    let mut body = String::new();
    for _ in 0..3 {
        body = asked(&app, "GET /nothing", "").await.2;
    }

    assert!(
        body.contains(r#""violated-policies":["handler::nothing"]"#),
        "{body}"
    );
}

#[tokio::test]
async fn the_response_to_a_denied_request_may_be_of_a_type_that_borrows() {
    let app = app();
    asked(&app, "GET /teapot", "").await;
    let (status, _, body) = asked(&app, "GET /teapot", "").await;
    assert_eq!((status.as_u16(), body.as_str()), (418, "teapot"));

    // In a layer the closure makes one type of all responses.
    let layer = RateLimitLayer::per_client("1/h").expect("limits");
    let layer = layer.on_denied(|rejection| borrowing(rejection).into_response());
    let app = Router::new().route("/", get(async || {})).layer(layer);
    let app = app.layer(MockConnectInfo(SocketAddr::from(([203, 0, 113, 7], 443))));
    asked(&app, "GET /", "").await;
    assert_eq!(asked(&app, "GET /", "").await.0, StatusCode::IM_A_TEAPOT);
}

#[tokio::test]
async fn the_body_of_a_request_without_its_key_has_the_reason() {
    let layer = RateLimitLayer::per_client("1/h").expect("limits");
    let by_key = Router::new()
        .route("/", get(async || {}))
        .layer(layer.clone().key_by(ApiKey));
    let (status, _, body) = asked(&by_key, "GET /", "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body.contains(r#""code":"missing_key""#), "{body}");

    let either = layer.key_by(ApiKey.or(ClientKey::new()));
    let either = Router::new().route("/", get(async || {})).layer(either);
    let either = either.layer(MockConnectInfo(SocketAddr::from(([203, 0, 113, 7], 443))));
    assert_eq!(asked(&either, "GET /", "").await.0, StatusCode::OK);
}

/// A glob import of the crate leaves the paths of the standard library and of the `http` crate alone.
mod glob {
    #[expect(unused_imports, reason = "it must not change the paths below")]
    use ratelimit_axum::*;

    #[test]
    fn paths_mean_the_same() {
        assert_eq!(core::time::Duration::ZERO.as_secs(), 0);
        assert_eq!(http::StatusCode::OK.as_u16(), 200);
    }
}
