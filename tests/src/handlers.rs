//! Handlers of a library, which a program finds in the registry it installs.

use ratelimit_axum::rate_limit;

/// A handler of axum.
#[rate_limit(policy = "of_a_library")]
pub async fn axum() -> &'static str {
    "hello"
}

/// A handler of actix-web.
#[ratelimit_actix::rate_limit(policy = "of_a_library")]
pub async fn actix() -> &'static str {
    "hello"
}
