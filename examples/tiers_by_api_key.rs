//! `cargo run -p ratelimit-examples --bin tiers_by_api_key`, then `curl -i -H 'X-Api-Key: gold-1' localhost:3000`: 5 pass, 2 of `free-1`.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use ratelimit_axum::{ApiKey, Limiter, RateLimitLayer, Registry};

/// Operators change these numbers, and a reload keeps what was spent.
const POLICIES: &str = r#"
[policy]
gold = "5/min"
free = "2/min; fixed_window 100/d"
"#;

#[derive(Clone)]
struct Tiers {
    gold: RateLimitLayer,
    free: RateLimitLayer,
}

/// Chooses the limit by the key, which is checked before it counts.
async fn by_tier(State(tiers): State<Tiers>, request: Request, next: Next) -> Response {
    let key = request.headers().get("x-api-key");
    let layer = match key.and_then(|key| key.to_str().ok()) {
        Some(key) if key.starts_with("gold-") => tiers.gold,
        Some(key) if key.starts_with("free-") => tiers.free,
        _ => return (StatusCode::UNAUTHORIZED, "send X-Api-Key").into_response(),
    };
    let (mut head, body) = request.into_parts();
    let passed = match layer.check(&mut head).await {
        Ok(passed) => passed,
        Err(answer) => return answer,
    };
    let mut response = next.run(Request::from_parts(head, body)).await;
    passed.write_headers(&mut response);
    response
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Registry::from_toml(POLICIES)?;
    let limiter = Limiter::in_memory();
    let tier = |name| RateLimitLayer::named(limiter.clone(), &registry, name);
    let tiers = Tiers {
        gold: tier("gold")?.key_by(ApiKey),
        free: tier("free")?.key_by(ApiKey),
    };
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(middleware::from_fn_with_state(tiers, by_tier))
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
