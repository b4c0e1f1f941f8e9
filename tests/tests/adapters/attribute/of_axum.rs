//! The handlers of axum.

use std::{convert::Infallible, net::SocketAddr};

use axum::{
    Extension, Json, Router,
    routing::{get, post},
};
use http::request::Parts;
use ratelimit_axum::{CurrentDecision, Key, KeyError, Policy, RateLimitLayer, rate_limit};

use super::Given;
use crate::server::serve_axum;

pub(super) async fn serve(given: Given) -> SocketAddr {
    let policy = Policy::parse("all", "5/min").expect("a policy");
    let layered = Router::new()
        .route("/both", get(both))
        .route("/layered", get(async || "hello"))
        .layer(RateLimitLayer::new(given.limiter.clone(), policy));
    let router = Router::new()
        .route("/plain", get(plain))
        .route("/nested", get(nested::plain))
        .route("/number", post(number))
        .route("/header", get(header))
        .route("/tenant", get(tenant))
        .route("/costly", get(costly))
        .route("/measured", get(measured))
        .route("/one", get(one))
        .route("/other", get(other))
        .route("/trial", get(trial))
        .route("/login", get(login))
        .route("/lost", get(lost))
        .merge(layered)
        .layer(Extension(given.limiter))
        .layer(Extension(given.registry));
    serve_axum(router).await
}

fn by_tenant(request: &Parts) -> Result<Key, KeyError> {
    let tenant = request.headers.get("x-tenant").ok_or(KeyError::Missing)?;
    Ok(Key::tagged("tenant", tenant)?)
}

fn is_friend(request: &Parts) -> bool {
    request.headers.contains_key("x-friend")
}

fn length(request: &Parts) -> u64 {
    let length = request.headers.get("x-length");
    length.map_or(1, |length| length.len() as u64)
}

/// Documentation stays, and so do generic arguments and patterns.
#[rate_limit("2/min")]
async fn plain() -> &'static str {
    "hello"
}

mod nested {
    use super::rate_limit;

    #[rate_limit("2/min")]
    pub(super) async fn plain() -> &'static str {
        "hello"
    }
}

#[rate_limit("2/min")]
async fn number(Json(number): Json<u64>) -> String {
    number.to_string()
}

#[rate_limit("1/min", key = "header:X-Api-Key")]
async fn header() -> &'static str {
    "hello"
}

#[rate_limit("1/min", key = by_tenant, exempt_when = is_friend)]
async fn tenant(CurrentDecision(decision): CurrentDecision) -> Result<String, Infallible> {
    Ok(format!("{:?}", decision.map(|decision| decision.remaining)))
}

#[rate_limit("5/min", cost = 3)]
async fn costly() -> &'static str {
    "hello"
}

#[rate_limit("5/min", cost = length)]
async fn measured() -> &'static str {
    "hello"
}

#[rate_limit("2/min", scope = "pair")]
async fn one() -> &'static str {
    "hello"
}

#[rate_limit("2/min", scope = "pair")]
async fn other() -> &'static str {
    "hello"
}

#[rate_limit("1/min", shadow)]
async fn trial() -> &'static str {
    "hello"
}

#[rate_limit(policy = "login")]
async fn login() -> &'static str {
    "hello"
}

#[rate_limit(policy = "missing")]
async fn lost() -> &'static str {
    "hello"
}

#[rate_limit("2/min")]
async fn both() -> &'static str {
    "hello"
}
