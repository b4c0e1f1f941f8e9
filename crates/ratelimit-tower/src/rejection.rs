//! Responses to requests that are not served.

use ratelimit_http::middleware;
#[doc(inline)]
pub use ratelimit_http::middleware::RejectionReason;

use crate::framework::HttpFramework;

/// A request that is not served, and the reason: the argument of `on_denied` and `on_error`.
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use ratelimit_tower::Rejection;
///
/// fn json_429(rejection: &Rejection<'_>) -> Response<Bytes> {
///     // The status and headers of the usual response, with another body.
///     rejection.response().map(|_| Bytes::from_static(b"{\"error\":\"slow_down\"}"))
/// }
/// ```
pub type Rejection<'a> = middleware::Rejection<'a, HttpFramework>;
