//! Answers to requests that do not reach the service.

use ratelimit_http::middleware;
#[doc(inline)]
pub use ratelimit_http::middleware::RejectionReason;

use crate::framework::HttpFramework;

/// A request that does not reach the service, and why.
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use ratelimit_tower::Rejection;
///
/// fn json_429(rejection: &Rejection<'_>) -> Response<Bytes> {
///     // The status and headers of the usual answer, with a body of our own.
///     rejection.response().map(|_| Bytes::from_static(b"{\"error\":\"slow_down\"}"))
/// }
/// ```
pub type Rejection<'a> = middleware::Rejection<'a, HttpFramework>;
