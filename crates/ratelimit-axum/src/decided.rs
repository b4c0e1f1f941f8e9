//! What was decided, for the handler.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use ratelimit_core::Decision;
use ratelimit_tower::lent_decision;

/// What the nearest limit around a handler decided about its request.
///
/// Nothing where there is no limit, the request was exempt, or no store decided; nor in a service that a
/// middleware calls from another task, as a buffer does, unless the layer is told to
/// [`share_decision`](crate::RateLimitLayer::share_decision).
///
/// ```
/// use axum::{Router, routing::get};
/// use ratelimit_axum::{Decided, RateLimitLayer};
///
/// async fn left(Decided(decision): Decided) -> String {
///     decision.map_or_else(String::new, |decision| format!("{} left", decision.remaining))
/// }
///
/// let layer = RateLimitLayer::per_client("10/min")?;
/// let app: Router = Router::new().route("/", get(left)).layer(layer);
/// # Ok::<(), ratelimit_axum::InvalidPolicy>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided(pub Option<Decision>);

impl<S: Sync> FromRequestParts<S> for Decided {
    type Rejection = Infallible;

    async fn from_request_parts(request: &mut Parts, _: &S) -> Result<Decided, Infallible> {
        let shared = || request.extensions.get().cloned();
        Ok(Decided(lent_decision().or_else(shared)))
    }
}
