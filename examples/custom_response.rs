//! `cargo run -p ratelimit-examples --bin custom_response`, then `curl -i localhost:3000` three times: the 3rd gets JSON of your own.

use std::net::SocketAddr;

use axum::{
    Json, Router,
    http::{StatusCode, header::ACCEPT},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use ratelimit_axum::{RateLimitLayer, Rejection};
use serde_json::json;

/// The response to a denied request: a page for a browser, JSON for a script.
fn denied(rejection: &Rejection<'_>) -> Response {
    // A gRPC client reads a status of gRPC and no body.
    if rejection.is_grpc() {
        return rejection.response();
    }
    // 429, or 403 for a client that a rule blocks.
    let problem = rejection.problem();
    let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    // None if waiting does not help.
    let wait = problem.retry_after_secs();

    let accept = rejection.request.headers.get(ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("text/html")) {
        let wait = wait.map_or("later".to_owned(), |wait| format!("in {wait} seconds"));
        let page = format!("<!doctype html><title>Slow down</title><p>Please try again {wait}.\n");
        return (status, Html(page)).into_response();
    }
    let body =
        json!({ "error": "slow_down", "policy": rejection.policy.name(), "retryAfter": wait });
    (status, Json(body)).into_response()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = RateLimitLayer::per_client("2/h")?.on_denied(denied);
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limit);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
