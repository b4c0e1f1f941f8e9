//! `cargo run -p ratelimit-examples --bin llm_tokens`, then `curl -i -d 'count to three' 127.0.0.1:3000/complete`: 100 tokens are charged, 5 stay.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::Request,
    http::HeaderValue,
    middleware::{self, Next},
    response::Response,
    routing::post,
};
use futures_util::stream;
use ratelimit_axum::{
    CostSource, HeaderStyle, HttpPolicy, Limiter, RateLimitLayer, SettleSource, SlotGuard,
};

/// The most tokens that the model writes for one request.
const MAX_ANSWER: u64 = 96;

/// Estimates the tokens of a request, four bytes each. `insert` replaces the header of a client.
async fn estimate(mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    let length = headers.get("content-length");
    let length = length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    // A chunked body can be longer than a `Content-Length` beside it.
    let length = length.filter(|_| !headers.contains_key("transfer-encoding"));
    let estimate = length.map_or(1000, |bytes| bytes.div_ceil(4) + MAX_ANSWER);
    let estimate = HeaderValue::from(estimate);
    request.headers_mut().insert("x-estimated-tokens", estimate);
    next.run(request).await
}

/// Stands for the model: it uses a token for each word that it reads or writes.
async fn complete(prompt: String) -> ([(&'static str, String); 1], &'static str) {
    let used = prompt.split_whitespace().count() + 2;
    ([("x-used-tokens", used.to_string())], "as told\n")
}

/// Streams 60 tokens. The number of tokens is known when the stream ends, and its head is long gone.
pub(crate) async fn stream(slot: Option<Extension<SlotGuard>>, prompt: String) -> Body {
    let read = prompt.split_whitespace().count() as u64;
    Body::from_stream(stream::unfold(0, move |written: u64| {
        let slot = slot.clone();
        async move {
            // If the client hangs up, the tokens until then are charged.
            if let Some(slot) = &slot {
                slot.settle(read + written);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            let token = Ok::<_, Infallible>(Bytes::from_static(b"token "));
            (written < 60).then(|| (token, written + 1))
        }
    }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = "sliding_window_log 1000/d; concurrency 20 lease 2min";
    let policy = HttpPolicy::parse("llm", limits)?
        .with_cost_source(CostSource::Header("x-estimated-tokens".to_owned()))
        .with_settle_source(SettleSource::Header("x-used-tokens".to_owned()))
        .with_charge_on("2xx".parse()?);
    // These headers have a number for each limit. The default is one number, and slots are no tokens.
    let limit = RateLimitLayer::new(Limiter::in_memory(), policy).headers(HeaderStyle::Ietf);
    let app = Router::new()
        .route("/complete", post(complete))
        .route("/stream", post(stream))
        .layer(limit)
        .layer(middleware::from_fn(estimate)) // added last, runs first
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
