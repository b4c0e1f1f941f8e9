//! Answers to requests that do not reach the service.

#[doc(inline)]
use crate::framework::ActixFramework;
use ratelimit_http::middleware;

/// A request that does not reach the service, and why.
///
/// ```
/// use actix_web::HttpResponse;
/// use ratelimit_actix::Rejection;
///
/// fn json_429(rejection: &Rejection<'_>) -> HttpResponse {
///     // The status and headers of the usual answer, with a body of our own.
///     rejection.response().set_body("{\"error\":\"slow_down\"}").map_into_boxed_body()
/// }
/// ```
pub type Rejection<'a> = middleware::Rejection<'a, ActixFramework>;
