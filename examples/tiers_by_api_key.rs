//! `cargo run -p ratelimit-examples --bin tiers_by_api_key`, then `curl -i -H 'X-Api-Key: gold-1' localhost:3000`: 5 pass, 2 of `free-1`.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use ratelimit_axum::{ApiKey, Limiter, RateLimitLayer, Registry};

/// Operators change these numbers, and a reload keeps what was spent.
const POLICIES: &str = r#"
[policy.api]
limits = "2/min; fixed_window 100/d"

[policy.api.tiers]
gold = "5/min; fixed_window 1000/d"
"#;

/// The tier of an authenticated caller.
#[derive(Clone, Copy)]
enum Plan {
    Gold,
    Free,
}

/// Checks the API key before it counts, and finds the caller's plan.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let key = request.headers().get("x-api-key");
    let plan = match key.and_then(|key| key.to_str().ok()) {
        Some(key) if key.starts_with("gold-") => Plan::Gold,
        Some(key) if key.starts_with("free-") => Plan::Free,
        _ => return (StatusCode::UNAUTHORIZED, "send X-Api-Key").into_response(),
    };
    request.extensions_mut().insert(plan);
    next.run(request).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Registry::from_toml(POLICIES)?;
    // Each API key has a budget of its tier. The first limits of the policy are those of the others.
    let limit = RateLimitLayer::named(Limiter::in_memory(), &registry, "api")?
        .key_by(ApiKey)
        .tier(|request| match request.extensions.get()? {
            Plan::Gold => Some("gold".to_owned()),
            Plan::Free => None,
        });
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(limit)
        .layer(middleware::from_fn(authenticate)) // added last, runs first
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
