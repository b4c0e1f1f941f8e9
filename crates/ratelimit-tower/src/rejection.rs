//! Responses to requests that are not served.

use bytes::Bytes;
use http::Response;
#[doc(inline)]
pub use ratelimit_http::middleware::RejectionReason;
use ratelimit_http::{
    defaults_type,
    middleware::{self, GlobalDefaults, HasDefaults},
};

use crate::{
    framework::HttpFramework,
    key::{ClientKey, KeyExtractor},
};

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

/// The response that a function for `on_denied` or `on_error` makes.
pub(crate) fn respond<R: Into<Response<Bytes>>>(
    make: impl Fn(&Rejection<'_>) -> R,
    rejection: &Rejection<'_>,
) -> Response<Bytes> {
    make(rejection).into()
}

impl HasDefaults for HttpFramework {
    fn defaults() -> &'static GlobalDefaults<Self> {
        static DEFAULTS: GlobalDefaults<HttpFramework> = GlobalDefaults::new();
        &DEFAULTS
    }
}

defaults_type! {
    /// ratelimit-axum has the same defaults: set them with one of the two crates.
    ///
    /// ```
    /// use ratelimit_http::{client_ip::TrustedProxies, response::HeaderStyle};
    /// use ratelimit_tower::{ClientKey, Defaults, set_global_defaults};
    ///
    /// let proxies = TrustedProxies::parse(["10.0.0.0/8"])?;
    /// let defaults = Defaults::new()
    ///     .client_key(ClientKey::behind(proxies))
    ///     .headers(HeaderStyle::Ietf);
    /// set_global_defaults(defaults)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Defaults<HttpFramework> for ClientKey: KeyExtractor, Rejection -> Into<Response<Bytes>> as respond
}
