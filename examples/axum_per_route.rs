//! `cargo run -p ratelimit-examples --bin axum_per_route`, then `curl -i localhost:3000/login`: the 3rd gets 429, `/` goes on.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use ratelimit_axum::{
    ClientKey, CurrentDecision, KeyExtractor, RateLimitLayer, RouteKey, rate_limit,
};

/// One line for a handler.
#[rate_limit("2/min")]
async fn login() -> &'static str {
    "logged in"
}

/// What the nearest limit left over.
async fn left(CurrentDecision(decision): CurrentDecision) -> String {
    let left = decision.map(|decision| decision.remaining);
    format!("{} left", left.unwrap_or_default())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Three for each client and each pattern: all of /users/1, /users/2 is one.
    let each_route = RateLimitLayer::per_client("3/min")?
        .key_by(ClientKey::new().and(RouteKey.or_shared("no route")));
    let users = Router::new()
        .route("/{id}", get(left))
        .route("/", get(left))
        .layer(each_route);

    let app = Router::new()
        .route("/", get(left))
        .route("/login", get(login))
        .nest("/users", users)
        .layer(RateLimitLayer::per_client("100/min")?)
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
