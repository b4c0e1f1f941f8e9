//! `cargo run -p ratelimit-examples --bin axum_metrics`, then `curl localhost:3000/metrics`: what the limits did, for Prometheus.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use ratelimit_axum::{Limiter, MemoryStore, Policy, RateLimitLayer};
use ratelimit_core::metrics::{CHECK_SECONDS, CHECK_SECONDS_BUCKETS, ROUND_TRIP_SECONDS};

/// Installs the recorder. Call it first: a policy looks its counters up when it is made.
fn recorder() -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new().add_global_label("application", "shop");
    // Without buckets the exporter makes summaries, which the alerts and the dashboard do not read.
    for name in [CHECK_SECONDS, ROUND_TRIP_SECONDS] {
        let matcher = Matcher::Full(name.to_owned());
        builder = builder.set_buckets_for_metric(matcher, &CHECK_SECONDS_BUCKETS)?;
    }
    let handle = builder.install_recorder()?;
    ratelimit_core::metrics::describe();
    Ok(handle)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let metrics = recorder()?;
    let upkeep = metrics.clone();
    tokio::spawn(async move {
        // The exporter keeps each value of a histogram until it is rendered, or until this.
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });

    let policy = Policy::parse("api", "2/h")?;
    let limit = RateLimitLayer::new(Limiter::in_memory(), policy);
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limit)
        // Added after the layer, so it is not limited. Keep it from the public: put it on a port of its own.
        .route(
            "/metrics",
            get(async move || {
                // Without this the numbers of an idle memory store stay as they were at its last hits.
                MemoryStore::update_metrics();
                metrics.render()
            }),
        )
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
