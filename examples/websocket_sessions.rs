//! `cargo run -p ratelimit-examples --bin websocket_sessions`, then open three websockets at `ws://127.0.0.1:3000/chat`: the third gets 429.

use std::net::SocketAddr;

use axum::{
    Extension, Router,
    extract::{WebSocketUpgrade, ws::WebSocket},
    response::Response,
    routing::get,
};
use ratelimit_axum::{Limiter, Policy, RateLimitLayer, SlotGuard};

/// The response, 101, ends here. The session goes on and takes the slot with it, if its request has one.
pub(crate) async fn chat(
    slot: Option<Extension<SlotGuard>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.on_upgrade(move |socket| session(socket, slot))
}

/// Sends every message back, until the client closes the connection or is gone.
async fn session(mut socket: WebSocket, slot: Option<Extension<SlotGuard>>) {
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            break;
        }
    }
    drop(slot); // The slot is free again.
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two sessions at a time, and 20 attempts a minute.
    let policy = Policy::parse("sessions", "concurrency 2 lease 30s; 20/min")?;
    let limit = RateLimitLayer::new(Limiter::in_memory(), policy);
    let app = Router::new()
        .route("/chat", get(chat))
        .layer(limit)
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
