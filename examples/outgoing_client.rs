//! `cargo run -p ratelimit-examples --bin outgoing_client`: sends 8 requests to a server of its own, 5 go at once and 3 are held back.

use std::time::Duration;

use axum::{Router, routing::get};
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use ratelimit_core::{Limiter, Policy};
use ratelimit_tower::{OutgoingError, OutgoingLimitLayer};
use tower::{Layer, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let server = Router::new().route("/", get(async || "hello"));
    tokio::spawn(async move { axum::serve(listener, server).await });

    // The other side allows five in an hour. A request that would have to wait longer than a second fails at
    // once, and nothing is sent.
    let policy = Policy::parse("upstream", "sliding_window_log 5/h")?;
    let limit =
        OutgoingLimitLayer::new(Limiter::in_memory(), policy).max_wait(Duration::from_secs(1));
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let client = limit.layer(client);

    let (mut sent, mut held_back) = (0, 0);
    for _ in 0..8 {
        let request = Request::get(&url).body(Empty::new())?;
        match client.clone().oneshot(request).await {
            Ok(_) => sent += 1,
            Err(OutgoingError::Denied(_)) => held_back += 1,
            Err(error) => return Err(error.into()),
        }
    }
    println!("{sent} sent, {held_back} held back");
    Ok(())
}
