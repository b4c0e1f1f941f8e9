//! The handlers of actix-web.

use std::{convert::Infallible, net::SocketAddr};

use actix_web::{
    HttpRequest,
    web::{self, Json, get, post},
};
use ratelimit_actix::{CurrentDecision, Key, KeyError, Policy, RateLimit, rate_limit};

use super::Given;
use crate::server::serve_actix;

pub(super) fn serve(given: Given) -> SocketAddr {
    let policy = Policy::parse("all", "5/min").expect("a policy");
    let limit = RateLimit::new(given.limiter.clone(), policy);
    serve_actix(move |app| {
        app.app_data(given.limiter.clone())
            .app_data(web::Data::new(given.registry.clone()))
            .route("/plain", get().to(plain))
            .route("/nested", get().to(nested::plain))
            .route("/number", post().to(number))
            .route("/header", get().to(header))
            .route("/tenant", get().to(tenant))
            .route("/costly", get().to(costly))
            .route("/measured", get().to(measured))
            .route("/one", get().to(one))
            .route("/other", get().to(other))
            .route("/trial", get().to(trial))
            .route("/login", get().to(login))
            .route("/lost", get().to(lost))
            .service(
                web::scope("")
                    .wrap(limit.clone())
                    .route("/both", get().to(both))
                    .route("/layered", get().to(async || "hello")),
            );
    })
}

fn by_tenant(request: &HttpRequest) -> Result<Key, KeyError> {
    let tenant = request.headers().get("x-tenant").ok_or(KeyError::Missing)?;
    Ok(Key::tagged("tenant", tenant)?)
}

fn is_friend(request: &HttpRequest) -> bool {
    request.headers().contains_key("x-friend")
}

fn length(request: &HttpRequest) -> u64 {
    let length = request.headers().get("x-length");
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
