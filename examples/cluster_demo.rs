//! `cargo run -p ratelimit-examples --bin cluster_demo -- redis://127.0.0.1:6379`: four instances under load admit exactly the limit.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::Empty;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use ratelimit_axum::{FailureMode, Limiter, Policy, RateLimitLayer, RedisConfig, RedisStore};

const INSTANCES: usize = 4;
const CLIENTS: usize = 32;
const REQUESTS: usize = 50;
const LIMIT: &str = "sliding_window_log 500/d";

/// One instance of the service: a connection, a limiter and a port of its own.
async fn instance(config: RedisConfig) -> Result<SocketAddr, Box<dyn std::error::Error>> {
    let store = RedisStore::new(config);
    if !store.wait_connected(Duration::from_secs(5)).await {
        return Err("Redis does not answer".into());
    }
    // Nothing passes that Redis did not count, so that the sum is exact whatever happens.
    let limiter = Limiter::new(store).failure_mode(FailureMode::Closed);
    let limit = RateLimitLayer::new(limiter, Policy::parse("demo", LIMIT)?);
    let app = Router::new().route("/", get(async || "hello")).layer(limit);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");
    // A prefix of its own, so that each run begins with a whole budget.
    let prefix = format!("cluster-demo-{}", std::process::id());
    let config = RedisConfig::new(url)?.prefix(&prefix)?;
    let config = config.timeout(Duration::from_secs(5));

    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        instances.push(instance(config.clone()).await?);
    }
    let clients = (0..CLIENTS).map(|client| {
        let url = format!("http://{}/", instances[client % INSTANCES]);
        tokio::spawn(async move {
            let http = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
            let mut counts = [0_usize; 3];
            for _ in 0..REQUESTS {
                let answer = http.get(url.parse().expect("an address")).await;
                counts[match answer.expect("an answer").status() {
                    StatusCode::OK => 0,
                    StatusCode::TOO_MANY_REQUESTS => 1,
                    _ => 2,
                }] += 1;
            }
            counts
        })
    });
    let mut sum = [0; 3];
    for client in clients.collect::<Vec<_>>() {
        let counts = client.await?;
        (0..3).for_each(|place| sum[place] += counts[place]);
    }
    let [admitted, denied, failed] = sum;
    println!(
        "{INSTANCES} instances, {CLIENTS} clients, {} requests",
        CLIENTS * REQUESTS
    );
    println!("limit {LIMIT}: {admitted} admitted, {denied} denied, {failed} failed");
    Ok(())
}
