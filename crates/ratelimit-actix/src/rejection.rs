//! Responses to requests that are not served.

#[doc(inline)]
use crate::framework::ActixFramework;
use ratelimit_http::middleware;

/// A request that is not served, and the reason: the argument of `on_denied` and `on_error`.
///
/// ```
/// use actix_web::HttpResponse;
/// use ratelimit_actix::Rejection;
///
/// fn json_429(rejection: &Rejection<'_>) -> HttpResponse {
///     // The status and headers of the usual response, with another body.
///     rejection.response().set_body("{\"error\":\"slow_down\"}").map_into_boxed_body()
/// }
/// ```
pub type Rejection<'a> = middleware::Rejection<'a, ActixFramework>;
