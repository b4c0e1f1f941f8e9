//! `cargo run -p ratelimit-examples --bin axum_basic`, then `curl -i localhost:3000`: the 11th within a minute gets 429.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use ratelimit_axum::RateLimitLayer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(RateLimitLayer::per_client("10/min")?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
