//! `cargo run -p ratelimit-examples --bin uploads_by_bytes`, then `head -c 4000000 /dev/zero | curl -i --data-binary @- 127.0.0.1:3000/files`.

use std::net::SocketAddr;

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{
        StatusCode,
        header::{CONTENT_LENGTH, TRANSFER_ENCODING},
    },
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::post,
};
use http_body_util::BodyExt as _;
use ratelimit_axum::{CostSource, HttpPolicy, Limiter, RateLimitLayer};

/// Answers 411 to uploads of unknown length. They would pass whenever a single byte is left.
async fn require_length(request: Request, next: Next) -> Response {
    let headers = request.headers();
    // A chunked body can be longer than a `Content-Length` beside it.
    if headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING) {
        next.run(request).await
    } else {
        (StatusCode::LENGTH_REQUIRED, "send Content-Length\n").into_response()
    }
}

/// Reads an upload piece by piece. A real service writes the pieces to a disk.
async fn store(mut body: Body) -> (StatusCode, String) {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return (StatusCode::BAD_REQUEST, "the upload broke off\n".to_owned());
        };
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    (StatusCode::CREATED, format!("{bytes} bytes\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 20 MB a day, 5 MB of it at once, and two uploads at a time.
    let limits = "20000000/d burst 5000000; concurrency 2 lease 5min";
    let policy = HttpPolicy::parse("upload", limits)?.with_cost_source(CostSource::ContentLength);
    let limit = RateLimitLayer::new(Limiter::in_memory(), policy);
    let app = Router::new()
        .route("/files", post(store))
        .layer(limit)
        .layer(middleware::from_fn(require_length)) // added last, runs first
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
