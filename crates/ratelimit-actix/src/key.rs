//! Whose budget is spent.

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
use ratelimit_http::key::{And, ClientAddress, Or, OrShared};
#[doc(inline)]
pub use ratelimit_http::key::{ApiKey, CookieKey, KeyError, MethodKey, PathKey, QueryKey};

use crate::framework::Head;

/// The value of one header, for headers that a gateway sets or checks.
///
/// A client that writes the header itself can escape its limit. Absent or empty is missing, two
/// lines are ambiguous.
pub type HeaderKey = ratelimit_http::key::HeaderKey<HeaderName>;

/// Finds the key of a request.
///
/// A function of the request is one:
///
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
///
/// A source that a request does not have follows the rule that is written behind it:
/// [`or`](Self::or) falls through to another, [`or_shared`](Self::or_shared) uses one budget for
/// all such requests, and without either the request is answered with 400. There is no key for the
/// empty string.
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of `request`.
    ///
    /// # Errors
    ///
    /// When it has none; that never means that the request is unlimited.
    fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError>;

    /// Where the client is, if this finds clients by their address: for limits that count by `ip`, and
    /// for rules about addresses.
    fn client_address(&self, _request: &HttpRequest) -> Option<Result<ClientAddress, KeyError>> {
        None
    }

    /// The key of both, "address and route" or "tenant and user".
    ///
    /// Whatever bytes the parts hold, different pairs are different keys.
    fn and<K: KeyExtractor>(self, other: K) -> And<Self, K>
    where
        Self: Sized,
    {
        And::new(self, other)
    }

    /// The key of `next` where this one is missing.
    fn or<K: KeyExtractor>(self, next: K) -> Or<Self, K>
    where
        Self: Sized,
    {
        Or::new(self, next)
    }

    /// One budget, called `name`, for all requests where this one is missing.
    ///
    /// # Panics
    ///
    /// When `name` is empty.
    fn or_shared(self, name: &str) -> OrShared<Self>
    where
        Self: Sized,
    {
        OrShared::new(self, name)
    }
}

impl<F> KeyExtractor for F
where
    F: Fn(&HttpRequest) -> Result<Key, KeyError> + Send + Sync + 'static,
{
    fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError> {
        self(request)
    }
}

impl KeyExtractor for HeaderKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError> {
        let lines = request.headers().get_all(self.name());
        self.extract_key(lines.map(HeaderValue::as_bytes))
    }
}

macro_rules! found_in_the_head {
    ($($source:ty),*) => {$(
        impl KeyExtractor for $source {
            fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError> {
                self.extract_key(&Head(request))
            }
        }
    )*};
}

found_in_the_head!(ApiKey, CookieKey, MethodKey, PathKey, QueryKey);

impl KeyExtractor for ClientKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError> {
        self.extract_key(&Head(request))
    }

    fn client_address(&self, request: &HttpRequest) -> Option<Result<ClientAddress, KeyError>> {
        Some(ClientKey::client_address(self, &Head(request)))
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for And<A, B> {
    fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError> {
        self.combine(|a| a.extract(request), |b| b.extract(request))
    }

    fn client_address(&self, request: &HttpRequest) -> Option<Result<ClientAddress, KeyError>> {
        let (a, b) = self.parts();
        a.client_address(request)
            .or_else(|| b.client_address(request))
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError> {
        self.combine(|a| a.extract(request), |b| b.extract(request))
    }

    fn client_address(&self, request: &HttpRequest) -> Option<Result<ClientAddress, KeyError>> {
        let (a, b) = self.parts();
        a.client_address(request)
            .or_else(|| b.client_address(request))
    }
}

impl<A: KeyExtractor> KeyExtractor for OrShared<A> {
    fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError> {
        self.combine(|a| a.extract(request))
    }

    fn client_address(&self, request: &HttpRequest) -> Option<Result<ClientAddress, KeyError>> {
        self.part().client_address(request)
    }
}

/// The route that a request matched, as it is written: `/users/{id}`, never the path itself.
///
/// Missing where no route matched.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteKey;

impl KeyExtractor for RouteKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, KeyError> {
        let route = request.match_pattern().ok_or(KeyError::Missing)?;
        Ok(Key::tagged("route", route)?)
    }
}
