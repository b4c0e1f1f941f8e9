//! Responses to requests that are not served.

use actix_web::{HttpResponse, Responder};
use ratelimit_http::{
    defaults_type,
    middleware::{self, GlobalDefaults, HasDefaults},
};

use crate::{
    framework::ActixFramework,
    key::{ClientKey, KeyExtractor},
};

/// A request that is not served, and the reason: the argument of `on_denied` and `on_error`.
///
/// Their functions return a [`Responder`], such as an `HttpResponse`.
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
///
/// A return type `impl Responder` needs `+ use<>` in edition 2024: the response must not have the lifetimes of the
/// rejection. `on_denied` of the attribute takes functions with and without it.
///
/// ```
/// use actix_web::{HttpResponse, Responder};
/// use ratelimit_actix::{RateLimit, Rejection};
///
/// fn denied(rejection: &Rejection<'_>) -> impl Responder + use<> {
///     HttpResponse::TooManyRequests().body(rejection.policy.name().to_owned())
/// }
///
/// let limit = RateLimit::per_client("10/min")?.on_denied(denied);
/// # Ok::<(), ratelimit_actix::InvalidPolicy>(())
/// ```
pub type Rejection<'a> = middleware::Rejection<'a, ActixFramework>;

/// The response that a function for `on_denied` or `on_error` makes.
pub(crate) fn respond<R: Responder>(
    make: impl Fn(&Rejection<'_>) -> R,
    rejection: &Rejection<'_>,
) -> HttpResponse {
    let response = make(rejection).respond_to(rejection.request);
    response.map_into_boxed_body()
}

impl HasDefaults for ActixFramework {
    fn defaults() -> &'static GlobalDefaults<Self> {
        static DEFAULTS: GlobalDefaults<ActixFramework> = GlobalDefaults::new();
        &DEFAULTS
    }
}

defaults_type! {
    /// ```
    /// use actix_web::{http::StatusCode, web::Json};
    /// use ratelimit_actix::{ClientKey, Defaults, HeaderStyle, TrustedProxies, set_global_defaults};
    ///
    /// let proxies = TrustedProxies::parse(["10.0.0.0/8"])?;
    /// let defaults = Defaults::new()
    ///     .client_key(ClientKey::behind(proxies))
    ///     .headers(HeaderStyle::Ietf)
    ///     .on_denied(|_| (Json("slow down"), StatusCode::TOO_MANY_REQUESTS));
    /// set_global_defaults(defaults)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Defaults<ActixFramework> for ClientKey: KeyExtractor, Rejection -> Responder as respond
}
