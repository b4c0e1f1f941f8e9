//! `cargo run -p ratelimit-examples --bin axum_behind_proxy`, then `curl -H 'X-Forwarded-For: 1.2.3.4' 127.0.0.1:3000/ip`: the key is 1.2.3.4.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::{ConnectInfo, State},
    http::request::Parts,
    routing::get,
};
use ratelimit_axum::{ClientKey, KeyExtractor as _, RateLimitLayer, TrustedProxies};

/// Shows who connects, what the proxy says about the client, and the key that is charged.
async fn ip(
    State(client): State<ClientKey>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Parts,
) -> String {
    let mut text = format!("peer: {}\n", peer.ip());
    for name in ["x-forwarded-for", "x-real-ip", "forwarded"] {
        for value in request.headers.get_all(name) {
            text.extend([name, ": ", value.to_str().unwrap_or("not ASCII"), "\n"]);
        }
    }
    match client.extract(&request) {
        Ok(key) => text + &format!("key: {key}\n"),
        Err(error) => text + &format!("no key: {error}\n"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");

    // The addresses from which the proxies connect, and nothing more. The default is this machine.
    let mut trusted: Vec<String> = arguments.collect();
    if trusted.is_empty() {
        trusted = vec!["127.0.0.1".to_owned(), "::1".to_owned()];
    }
    let client = ClientKey::behind(TrustedProxies::parse(&trusted)?);

    let limit = RateLimitLayer::per_client("2/min")?.key_by(client.clone());
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limit)
        .route("/ip", get(ip)) // below the layer, so it is not limited; not for the public
        .with_state(client)
        .into_make_service_with_connect_info::<SocketAddr>();

    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
