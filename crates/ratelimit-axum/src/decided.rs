//! What was decided, for the handler.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use ratelimit_core::Decision;

/// What the nearest limit around a handler decided about its request.
///
/// It holds `None` where there is no limit, the request was exempt, or no store decided. The decision is in
/// the request's extensions, so it is there in other tasks as well, and for `Extension<Decision>`;
/// [`without_decision`](crate::RateLimitLayer::without_decision) switches that off.
///
/// ```
/// use axum::{Router, routing::get};
/// use ratelimit_axum::{CurrentDecision, RateLimitLayer};
///
/// async fn left(CurrentDecision(decision): CurrentDecision) -> String {
///     decision.map_or_else(String::new, |decision| format!("{} left", decision.remaining))
/// }
///
/// let layer = RateLimitLayer::per_client("10/min")?;
/// let app: Router = Router::new().route("/", get(left)).layer(layer);
/// # Ok::<(), ratelimit_axum::InvalidPolicy>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentDecision(pub Option<Decision>);

impl<S: Sync> FromRequestParts<S> for CurrentDecision {
    type Rejection = Infallible;

    async fn from_request_parts(request: &mut Parts, _: &S) -> Result<CurrentDecision, Infallible> {
        Ok(CurrentDecision(request.extensions.get().cloned()))
    }
}
