//! The keys by which requests are counted.

use actix_web::{
    HttpRequest,
    http::header::{HeaderName, HeaderValue},
};
use ratelimit_core::Key;
/// ```
/// use actix_web::test::TestRequest;
/// use ratelimit_actix::{ClientKey, KeyExtractor, TrustedProxies};
///
/// let key = ClientKey::behind(TrustedProxies::parse(["10.0.0.0/8"])?);
/// let request = TestRequest::get()
///     .peer_addr("10.0.0.1:4711".parse()?)
///     .insert_header(("x-forwarded-for", "6.6.6.6, 203.0.113.7"))
///     .to_http_request();
/// assert_eq!(key.extract(&request)?.as_str(), "ip:203.0.113.7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(inline)]
pub use ratelimit_http::key::ClientKey;
/// ```
/// use actix_web::{HttpMessage, test::TestRequest};
/// use ratelimit_actix::{ExtensionKey, Key, KeyExtractor};
///
/// struct User(u64);
///
/// let by_user = ExtensionKey::new(|user: &User| Ok(Key::tagged("user", user.0.to_string())?));
/// let request = TestRequest::get().to_http_request();
/// request.extensions_mut().insert(User(7));
/// assert_eq!(by_user.extract(&request)?.as_str(), "user:7");
/// # Ok::<(), ratelimit_actix::KeyError>(())
/// ```
#[doc(inline)]
pub use ratelimit_http::key::ExtensionKey;
#[doc(inline)]
pub use ratelimit_http::key::{ApiKey, CookieKey, KeyError, MethodKey, PathKey, QueryKey};
use ratelimit_http::{
    key::{ClientAddress, KeyKinds},
    key_extractor,
};

use crate::framework::Head;

/// The value of one header, for headers that a gateway sets or checks.
///
/// An absent or empty header is missing, two lines are ambiguous. A client that can write the header itself
/// can escape its limit.
pub type HeaderKey = ratelimit_http::key::HeaderKey<HeaderName>;

key_extractor! {
    /// ```
    /// use actix_web::{HttpRequest, test::TestRequest};
    /// use ratelimit_actix::{Key, KeyError, KeyExtractor};
    ///
    /// fn by_tenant(request: &HttpRequest) -> Result<Key, KeyError> {
    ///     let tenant = request.headers().get("x-tenant").ok_or(KeyError::Missing)?;
    ///     Ok(Key::tagged("tenant", tenant)?)
    /// }
    ///
    /// let request = TestRequest::get().insert_header(("x-tenant", "acme")).to_http_request();
    /// assert_eq!(by_tenant.extract(&request)?.as_str(), "tenant:acme");
    /// # Ok::<(), KeyError>(())
    /// ```
    trait KeyExtractor(HttpRequest as Head) for ApiKey, CookieKey, MethodKey, PathKey, QueryKey
}

impl KeyExtractor for HeaderKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError> {
        let lines = request.headers().get_all(self.name());
        self.extract_key(lines.map(HeaderValue::as_bytes))
    }

    fn key_kinds(&self) -> KeyKinds {
        self.kinds()
    }
}

impl KeyExtractor for ClientKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError> {
        self.extract_key(&Head(request))
    }

    fn client_address(&self, request: &HttpRequest) -> Option<Result<ClientAddress, KeyError>> {
        Some(ClientKey::client_address(self, &Head(request)))
    }
}

/// The route that a request matched, as it is registered: `/users/{id}`, never the path itself.
///
/// The key is missing if no route matched.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteKey;

impl KeyExtractor for RouteKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError> {
        let route = request.match_pattern().ok_or(KeyError::Missing)?;
        Ok(Key::tagged("route", route)?)
    }

    fn key_kinds(&self) -> KeyKinds {
        KeyKinds::tagged("route")
    }
}
