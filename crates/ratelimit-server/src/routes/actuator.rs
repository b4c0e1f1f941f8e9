//! Health, info and metrics for operators.

use std::{collections::BTreeMap, net::SocketAddr};

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
    check_response::is_false,
    config::ConsoleMode,
    json_response::json,
    policy_summary::{MAX_SHOWN_POLICIES, PolicySummary},
};

#[derive(Serialize)]
struct HealthBody {
    status: &'static str,
    /// Whether the server is ready although Redis has not answered since the start.
    #[serde(skip_serializing_if = "is_false")]
    degraded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl HealthBody {
    const UP: HealthBody = HealthBody {
        status: "UP",
        degraded: false,
        reason: None,
    };

    const DEGRADED: HealthBody = HealthBody {
        status: "UP",
        degraded: true,
        reason: Some("no connection to Redis since the start: the fallback of each policy applies"),
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

/// Readiness. It fails until the first connection to Redis or the end of the readiness grace, until the first rules of the xDS server and during a
/// shutdown.
///
/// A later outage of Redis or of the xDS server does not change it, because the failure mode decides then, and all instances would
/// leave the load balancer at once.
pub(super) async fn health(State(app): State<App>) -> Response<Body> {
    let (status, reason) = if app.is_draining() {
        ("OUT_OF_SERVICE", "the server shuts down")
    } else if !app.has_store() && !app.is_readiness_grace_over() {
        ("DOWN", "no connection to Redis since the start")
    } else if !app.has_envoy_rules() {
        ("DOWN", "no rules of the xDS server since the start")
    } else if !app.has_store() {
        return json(StatusCode::OK, &HealthBody::DEGRADED);
    } else {
        return json(StatusCode::OK, &HealthBody::UP);
    };
    let body = HealthBody {
        status,
        degraded: false,
        reason: Some(reason),
    };
    json(StatusCode::SERVICE_UNAVAILABLE, &body)
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

/// The paths that a person looks for first.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    name: &'static str,
    api: &'static str,
    health: &'static str,
    metrics: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    console: Option<&'static str>,
    /// The listener of metrics and console, if it is not this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_listen: Option<SocketAddr>,
}

/// `/`: where everything is.
pub(super) async fn index(State(app): State<App>) -> Response<Body> {
    let has_console = app.console_mode(&app.rules()) != ConsoleMode::Off;
    let index = Index {
        name: "ratelimit-server",
        api: "/openapi.json",
        health: "/actuator/health",
        metrics: "/actuator/prometheus",
        console: has_console.then_some("/console/"),
        admin_listen: app.admin_listen(),
    };
    json(StatusCode::OK, &index)
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
    let text = app.rendering().get(app.metrics()).await;
    // An error means that the runtime shuts down.
    let text = text.map_err(|why| {
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
