//! `cargo run -p ratelimit-examples --bin actix_custom_response`, then `curl -i localhost:3000` three times: the 3rd gets your JSON.

use actix_web::{App, HttpResponse, HttpServer, http::StatusCode, http::header::ACCEPT, web};
use ratelimit_actix::{RateLimit, Rejection};
use serde_json::json;

/// The response to a denied request: a page for a browser, JSON for a script.
fn denied(rejection: &Rejection<'_>) -> HttpResponse {
    if rejection.is_grpc() {
        return rejection.response();
    }
    let problem = rejection.problem();
    let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let wait = problem.retry_after_secs();
    let mut response = HttpResponse::build(status);

    let accept = rejection.request.headers().get(ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("text/html")) {
        let wait = wait.map_or("later".to_owned(), |wait| format!("in {wait} seconds"));
        let page = format!("<!doctype html><title>Slow down</title><p>Please try again {wait}.\n");
        return response.content_type("text/html; charset=utf-8").body(page);
    }
    let body =
        json!({ "error": "slow_down", "policy": rejection.policy.name(), "retryAfter": wait });
    response.json(body)
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = RateLimit::per_client("2/h")?.on_denied(denied);
    let server = HttpServer::new(move || {
        App::new()
            .wrap(limit.clone())
            .route("/", web::get().to(async || "hello\n"))
    });

    let address = std::env::args().nth(1);
    let server = server.bind(address.as_deref().unwrap_or("127.0.0.1:3000"))?;
    println!("http://{}", server.addrs()[0]);
    server.run().await?;
    Ok(())
}
