//! `cargo run -p ratelimit-examples --bin axum_behind_proxy`, then `curl -i -H 'X-Forwarded-For: 1.2.3.4' localhost:3000`: a budget for each.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use ratelimit_axum::{ClientKey, RateLimitLayer, TrustedProxies};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The addresses from which the proxies connect, and nothing more: here this very machine.
    let proxies = TrustedProxies::parse(["127.0.0.1", "::1"])?;
    let limit = RateLimitLayer::per_client("2/min")?.key_by(ClientKey::behind(proxies));
    let app = Router::new().route("/", get(async || "hello")).layer(limit);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
