//! `cargo run -p ratelimit-examples --bin axum_redis -- 127.0.0.1:3000 redis://127.0.0.1:6379`, twice on two ports: one budget.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use ratelimit_axum::{Limiter, Policy, RateLimitLayer, RedisConfig, RedisStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let url = arguments.next();
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");

    // While Redis does not answer, each instance counts on its own with the same limits.
    let redis = RedisStore::new(RedisConfig::new(url)?);
    let limit = RateLimitLayer::new(Limiter::new(redis), Policy::parse("api", "10/min")?);
    let app = Router::new().route("/", get(async || "hello")).layer(limit);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();

    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
