//! The extractor of the current decision, and the key of the matched route.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, MatchedPath};
use http::request::Parts;
use ratelimit_core::{Decision, Key};
use ratelimit_http::key::KeyKinds;
use ratelimit_tower::{KeyError, KeyExtractor};

/// The decision of the nearest limit around a handler about its request.
///
/// - It is `None` if there is no limit, the request was exempt, no store decided, or the layer has
///   [`DecisionSharing::Off`](crate::DecisionSharing::Off).
/// - The decision is in the request's extensions, so it is available in spawned tasks and as
///   `Extension<Decision>` too.
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

/// The route that a request matched, as the router writes it: `/users/{id}`, never the path itself.
///
/// The key is missing if no route matched, as in a fallback.
///
/// ```
/// use ratelimit_axum::{ClientKey, KeyExtractor, RateLimitLayer, RouteKey};
///
/// // Each client has a budget for each route.
/// let each = ClientKey::new().and(RouteKey.or_shared("no route"));
/// let layer = RateLimitLayer::per_client("10/min")?.key_by(each);
/// # Ok::<(), ratelimit_axum::InvalidPolicy>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteKey;

impl KeyExtractor for RouteKey {
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        let route = request.extensions.get::<MatchedPath>();
        let route = route.ok_or(KeyError::Missing)?;
        Ok(Key::tagged("route", route.as_str())?)
    }

    fn key_kinds(&self) -> KeyKinds {
        KeyKinds::tagged("route")
    }
}
