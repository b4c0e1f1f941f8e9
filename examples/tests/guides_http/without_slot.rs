//! The handlers of the guides, for requests that pass without a slot.

#[expect(dead_code, reason = "a program, of which the handler is called")]
#[path = "../../llm_tokens.rs"]
mod llm_tokens;
#[expect(dead_code, reason = "a program, of which the handler is called")]
#[path = "../../websocket_sessions.rs"]
mod websocket_sessions;

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::any};
use ratelimit_axum::{FailureMode, Limiter, Policy, RateLimitLayer, RedisConfig, RedisStore};
use tokio::{net::TcpListener, task::spawn_blocking};

use crate::websockets;

/// Layers whose requests all pass, and hold no slot: the limit is one, and the second request is over it.
fn layers() -> [(&'static str, RateLimitLayer); 4] {
    let policy = Policy::parse("guide", "concurrency 1 lease 30s").expect("limits");
    let away = RedisConfig::new("redis://127.0.0.1:1").expect("a URL");
    let away = Limiter::new(RedisStore::new(away.timeout(Duration::from_secs(1))));
    let open = policy.clone().with_failure_mode(FailureMode::Open);
    let memory = |policy| RateLimitLayer::new(Limiter::in_memory(), policy);
    [
        ("shadow", memory(policy.clone().shadow())),
        (
            "enforced",
            memory(policy.clone().with_enforcement(0).expect("percent")),
        ),
        ("open", RateLimitLayer::new(away, open)),
        ("exempt", memory(policy).exempt_when(|_| true)),
    ]
}

/// Serves the handlers of two guides under a limit.
async fn serve(limit: RateLimitLayer) -> String {
    let app = Router::new()
        .route("/chat", any(websocket_sessions::chat))
        .route("/stream", any(llm_tokens::stream))
        .layer(limit)
        .into_make_service_with_connect_info::<SocketAddr>();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

#[tokio::test]
async fn websockets_open_without_a_slot() {
    for (case, limit) in layers() {
        let address = serve(limit).await;
        let open = async || {
            let address = address.clone();
            let opened = spawn_blocking(move || websockets::open(&address)).await;
            opened.expect("an answer")
        };

        let (first, second) = (open().await, open().await);

        assert_eq!([first.1, second.1], ["101", "101"], "{case}");
    }
}

#[tokio::test]
async fn llm_streams_without_a_slot() {
    for (case, limit) in layers() {
        let url = format!("http://{}/stream", serve(limit).await);
        let client = reqwest::Client::builder().no_proxy().build();
        let client = client.expect("a client");
        let send = async || client.post(&url).body("one").send().await.expect("sent");

        let (first, second) = (send().await, send().await);

        assert_eq!([first.status(), second.status()], [200, 200], "{case}");
        let text = second.text().await.expect("a stream");
        assert_eq!(text, "token ".repeat(60), "{case}");
    }
}
