//! `cargo run -p ratelimit-examples --bin uploads_by_bytes`, then `head -c 200000 /dev/zero | curl -i --data-binary @- 127.0.0.1:3000/files`.

use std::net::SocketAddr;

use axum::{Router, body::Body, http::StatusCode, routing::post};
use http_body_util::BodyExt as _;
use ratelimit_axum::{CostSource, HttpPolicy, Limiter, RateLimitLayer};

/// Reads an upload piece by piece. A real service writes the pieces to a disk.
async fn store(mut body: Body) -> (StatusCode, String) {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return (StatusCode::BAD_REQUEST, "the upload broke off\n".to_owned());
        };
        bytes += frame.data_ref().map_or(0, |data| data.len());
    }
    (StatusCode::CREATED, format!("{bytes} bytes\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A megabyte a day, a quarter of it at once, and two uploads at a time.
    let policy = HttpPolicy::parse("upload", "1000000/d burst 250000; concurrency 2 lease 5min")?
        .with_cost_source(CostSource::ContentLength);
    let limit = RateLimitLayer::new(Limiter::in_memory(), policy);
    let app = Router::new()
        .route("/files", post(store))
        .layer(limit)
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
