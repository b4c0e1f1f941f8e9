//! Health, info and metrics for operators.

use std::collections::BTreeMap;

use axum::{
    body::Body,
    extract::State,
    http::{Response, StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
};
use serde::Serialize;

use crate::{
    api_error::ApiError,
    app::App,
    json_response::json,
    metrics,
    policy_summary::{MAX_SHOWN_POLICIES, PolicySummary},
};

#[derive(Serialize)]
struct HealthBody {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl HealthBody {
    const UP: HealthBody = HealthBody {
        status: "UP",
        reason: None,
    };
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Info<'a> {
    app: Named<'a>,
    store: StoreInfo,
    policies: BTreeMap<&'a str, String>,
    /// The number of policies that `policies` omits.
    #[serde(skip_serializing_if = "is_zero")]
    more_policies: usize,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StoreInfo {
    kind: &'static str,
    /// The failure mode of policies without one of their own.
    on_failure: &'static str,
}

/// Readiness. It fails until the first connection to Redis, until the first rules of the xDS server and during a
/// shutdown.
///
/// A later outage of Redis or of the xDS server does not change it, because the failure mode decides then, and all instances would
/// leave the load balancer at once.
pub(super) async fn health(State(app): State<App>) -> Response<Body> {
    let (status, reason) = if app.is_draining() {
        ("OUT_OF_SERVICE", "the server shuts down")
    } else if !app.has_store() {
        ("DOWN", "no connection to Redis since the start")
    } else if !app.has_envoy_rules() {
        ("DOWN", "no rules of the xDS server since the start")
    } else {
        return json(StatusCode::OK, &HealthBody::UP);
    };
    let reason = Some(reason);
    json(
        StatusCode::SERVICE_UNAVAILABLE,
        &HealthBody { status, reason },
    )
}

/// Liveness.
pub(super) async fn liveness() -> Response<Body> {
    json(StatusCode::OK, &HealthBody::UP)
}

/// The health of Envoy's own rate limit server: `OK`, or 503 while the server drains.
///
/// Manifests restart a server by it, so neither Redis nor missing rules fail it.
pub(super) async fn healthcheck(State(app): State<App>) -> (StatusCode, &'static str) {
    if app.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "")
    } else {
        (StatusCode::OK, "OK")
    }
}

pub(super) async fn info(State(app): State<App>) -> Response<Body> {
    let rules = app.rules();
    let policies = rules.policies.iter();
    let info = Info {
        app: Named {
            name: app.application(),
            version: env!("CARGO_PKG_VERSION"),
        },
        store: StoreInfo {
            kind: app.store(),
            on_failure: app.config_state().failure_mode.as_str(),
        },
        policies: policies
            .take(MAX_SHOWN_POLICIES)
            .map(|policy| (policy.name(), PolicySummary(policy).to_string()))
            .collect(),
        more_policies: rules.policies.iter().skip(MAX_SHOWN_POLICIES).count(),
    };
    json(StatusCode::OK, &info)
}

/// The metrics. They are rendered on a blocking thread: those of 10,000 policies take tens of milliseconds.
pub(super) async fn prometheus(State(app): State<App>) -> Result<impl IntoResponse, ApiError> {
    let handle = app.metrics().clone();
    let rendered = tokio::task::spawn_blocking(move || metrics::render(&handle)).await;
    // An error means that the runtime shuts down.
    let text = rendered.map_err(|why| {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "No metrics",
            why.to_string(),
        )
    })?;
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(CONTENT_TYPE, content_type)], text))
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
