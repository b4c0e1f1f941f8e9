//! `cargo run -p ratelimit-examples --bin outgoing_reqwest`: sends 3 requests, one of them again when the peer refuses it for a second.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use axum::{Router, http::StatusCode, response::IntoResponse, routing::get};
use http::{Request, Response};
use ratelimit_core::{Limiter, Policy};
use ratelimit_tower::{OutgoingError, OutgoingLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

/// The peer: it refuses the third request for one second, as a busy API does.
async fn peer() -> impl IntoResponse {
    static REQUESTS: AtomicUsize = AtomicUsize::new(1);
    match REQUESTS.fetch_add(1, Relaxed) {
        3 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], ""),
        _ => (StatusCode::OK, [("retry-after", "0")], "hello"),
    }
}

/// The seconds for which the peer asks. `Retry-After` can be a date as well, which this reads as one second.
fn retry_after<B>(response: &Response<B>) -> Option<Duration> {
    let busy = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    let field = response.headers().get("retry-after")?;
    let seconds = field.to_str().ok().and_then(|text| text.parse().ok());
    let is_busy = busy.contains(&response.status());
    is_busy.then(|| Duration::from_secs(seconds.unwrap_or(1).min(60)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let server = Router::new().route("/", get(peer));
    tokio::spawn(async move { axum::serve(listener, server).await });

    let client = reqwest::Client::new();
    let client = service_fn(move |request: Request<reqwest::Body>| {
        let client = client.clone();
        async move {
            let response = client.execute(request.try_into()?).await?;
            Ok::<_, reqwest::Error>(Response::<reqwest::Body>::from(response))
        }
    });
    let policy = Policy::parse("upstream", "2/s burst 3")?;
    let limit = OutgoingLimitLayer::new(Limiter::in_memory(), policy);
    let client = limit.max_wait(Duration::from_secs(5)).layer(client);

    let (start, mut sent, mut refused) = (Instant::now(), 0, 0);
    while sent < 3 {
        let request = Request::get(&url).body(reqwest::Body::default())?;
        let response = match client.clone().oneshot(request).await {
            Ok(response) => response,
            Err(OutgoingError::Denied(_)) => return Err("longer than five seconds".into()),
            Err(error) => return Err(error.into()),
        };
        match retry_after(&response) {
            Some(wait) => {
                refused += 1;
                tokio::time::sleep(wait).await;
            }
            None => sent += 1,
        }
    }
    let is_late = start.elapsed() >= Duration::from_secs(1);
    println!("{sent} answered, {refused} refused and sent again, after a second: {is_late}");
    Ok(())
}
