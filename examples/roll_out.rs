//! `cargo run -p ratelimit-examples --bin roll_out`, then `curl -i -H 'X-User: ann' localhost:3000/watch` three times: none is denied.

use std::net::SocketAddr;

use axum::{Router, http::HeaderName, routing::get};
use ratelimit_axum::{HeaderKey, Limiter, RateLimitLayer, Registry};

/// The same limit in the three stages of a roll-out. A service has one of them, and a reload moves it on.
const POLICIES: &str = r#"
[policy.watch]
limits = "sliding_window_log 2/h"
shadow = true

[policy.some]
limits = "sliding_window_log 2/h"
enforced = 50

[policy.all]
limits = "sliding_window_log 2/h"
"#;

fn app() -> Result<Router, Box<dyn std::error::Error>> {
    let (registry, limiter) = (Registry::from_toml(POLICIES)?, Limiter::in_memory());
    let stage = |policy| -> Result<_, Box<dyn std::error::Error>> {
        let user = HeaderKey::new(HeaderName::from_static("x-user"));
        let limit = RateLimitLayer::named(limiter.clone(), &registry, policy)?;
        // The mark X-RateLimit-Shadow tells which requests the limit would deny.
        Ok(get(async || "hello\n").layer(limit.key_by(user).mark_responses()))
    };
    Ok(Router::new()
        .route("/watch", stage("watch")?)
        .route("/some", stage("some")?)
        .route("/all", stage("all")?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = app()?.into_make_service_with_connect_info::<SocketAddr>();
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
