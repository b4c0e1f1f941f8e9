//! The matched route as a key.

use axum::extract::MatchedPath;
use http::request::Parts;
use ratelimit_core::Key;
use ratelimit_tower::{KeyError, KeyExtractor};

/// The route that a request matched, as the router writes it: `/users/{id}`, never the path itself.
///
/// Missing where no route matched, as in a fallback.
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
}
