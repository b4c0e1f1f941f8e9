//! `cargo run -p ratelimit-examples --bin wait_for_turn`, then `curl localhost:3000/report` three times at once: the 2nd waits.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::get,
};
use ratelimit_axum::{Key, Limiter, Policy, RateLimitLayer};

#[derive(Clone)]
struct Reports {
    limiter: Limiter,
    policy: Policy,
    printer: Key,
}

/// One report every four seconds, for all callers together. A caller waits for its turn for five seconds at most.
async fn report(State(reports): State<Reports>) -> Response {
    let Reports {
        limiter,
        policy,
        printer,
    } = &reports;
    match limiter
        .acquire(policy, printer, Duration::from_secs(5))
        .await
    {
        Ok(_) => "printed\n".into_response(),
        Err(error) => {
            let wait = error.retry_after.unwrap_or(Duration::from_secs(5));
            let wait = [(RETRY_AFTER, (wait.as_secs() + 1).to_string())];
            (StatusCode::SERVICE_UNAVAILABLE, wait, "too many wait\n").into_response()
        }
    }
}

fn app(limiter: Limiter) -> Result<Router, Box<dyn std::error::Error>> {
    // The layer waits by itself: two places, and one request leaves every four seconds.
    let payments = Policy::parse("payments", "leaky_bucket 1/4s queue 2")?;
    let payments = RateLimitLayer::new(limiter.clone(), payments);
    let reports = Reports {
        limiter,
        policy: Policy::parse("reports", "1/4s")?,
        printer: Key::new("printer")?,
    };
    Ok(Router::new()
        .route("/pay", get(async || "paid\n").layer(payments))
        .route("/report", get(report))
        .with_state(reports))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = app(Limiter::in_memory())?;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
