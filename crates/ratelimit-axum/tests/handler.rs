//! Limited handlers: what they take, what they answer, and `#[debug_handler]` beside the limit.

use std::net::SocketAddr;

use axum::{
    Json, Router,
    body::Body,
    debug_handler,
    extract::{Path, State, connect_info::MockConnectInfo},
    http::{Method, StatusCode},
    routing::{get, post},
};
use http::{Request, Response};
use ratelimit_axum::{Limiter, rate_limit};
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

fn app() -> Router {
    let peer = SocketAddr::from(([203, 0, 113, 7], 443));
    Router::new()
        .route("/above/{id}", post(above))
        .route("/below/{id}", post(below))
        .route("/nothing", get(nothing))
        .route("/one", post(one))
        .route("/sixteen", post(sixteen))
        .route("/generic/{id}", get(generic::<u8>))
        .route("/sell/{id}", get(Shop::sell))
        .with_state(App { name: "shop" })
        .layer(axum::Extension(Limiter::in_memory()))
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
