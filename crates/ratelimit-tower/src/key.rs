//! Whose budget is spent.

mod client;
mod request;

use http::{HeaderName, HeaderValue, request::Parts};
use ratelimit_core::Key;
/// ```
/// use ratelimit_tower::{KeyError, KeyExtractor, PathKey};
///
/// let by_team = PathKey::new("/teams/{team}/members/{member}", "team");
/// let key_of = |path: &str| {
///     let request = http::Request::builder().uri(path).body(()).expect("a good path");
///     by_team.extract(&request.into_parts().0)
/// };
/// assert_eq!(key_of("/teams/r%65d/members/7")?.as_str(), "path:team:red");
/// assert_eq!(key_of("/teams"), Err(KeyError::Missing));
/// # Ok::<(), KeyError>(())
/// ```
#[doc(inline)]
pub use ratelimit_http::key::PathKey;
#[doc(inline)]
pub use ratelimit_http::key::{
    And, ApiKey, ClientAddress, CookieKey, KeyError, MethodKey, Or, OrShared, QueryKey,
};

pub use self::{
    client::{AddPeerAddr, ClientKey, PeerAddr},
    request::{ExtensionKey, RouteKey, RouteName},
};
use crate::framework::Head;

/// The value of one header, for headers that a gateway sets or checks.
///
/// A client that writes the header itself can escape its limit. Absent or empty is missing, two
/// lines are ambiguous.
///
/// ```
/// use http::HeaderName;
/// use ratelimit_tower::{ClientKey, HeaderKey, KeyExtractor};
///
/// let tenant = HeaderKey::new(HeaderName::from_static("x-tenant")).or(ClientKey::new());
/// # let _ = tenant;
/// ```
pub type HeaderKey = ratelimit_http::key::HeaderKey<HeaderName>;

/// Finds the key of a request.
///
/// A function of the request's head is one:
///
/// ```
/// use http::request::Parts;
/// use ratelimit_core::Key;
/// use ratelimit_tower::{KeyError, KeyExtractor};
///
/// fn by_tenant(request: &Parts) -> Result<Key, KeyError> {
///     let tenant = request.headers.get("x-tenant").ok_or(KeyError::Missing)?;
///     Ok(Key::tagged("tenant", tenant)?)
/// }
///
/// let (request, ()) = http::Request::builder()
///     .header("x-tenant", "acme")
///     .body(())?
///     .into_parts();
/// assert_eq!(by_tenant.extract(&request)?.as_str(), "tenant:acme");
/// # Ok::<(), Box<dyn std::error::Error>>(())
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
    fn extract(&self, request: &Parts) -> Result<Key, KeyError>;

    /// Where the client is, if this finds clients by their address: for limits that count by `ip`, and
    /// for rules about addresses.
    fn client_address(&self, _request: &Parts) -> Option<Result<ClientAddress, KeyError>> {
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
    F: Fn(&Parts) -> Result<Key, KeyError> + Send + Sync + 'static,
{
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        self(request)
    }
}

impl KeyExtractor for HeaderKey {
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        let lines = request.headers.get_all(self.name()).iter();
        self.extract_key(lines.map(HeaderValue::as_bytes))
    }
}

macro_rules! found_in_the_head {
    ($($source:ty),*) => {$(
        impl KeyExtractor for $source {
            fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
                self.extract_key(&Head(request))
            }
        }
    )*};
}

found_in_the_head!(ApiKey, CookieKey, MethodKey, PathKey, QueryKey);

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for And<A, B> {
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        self.combine(|a| a.extract(request), |b| b.extract(request))
    }

    fn client_address(&self, request: &Parts) -> Option<Result<ClientAddress, KeyError>> {
        let (a, b) = self.parts();
        a.client_address(request)
            .or_else(|| b.client_address(request))
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        self.combine(|a| a.extract(request), |b| b.extract(request))
    }

    fn client_address(&self, request: &Parts) -> Option<Result<ClientAddress, KeyError>> {
        let (a, b) = self.parts();
        a.client_address(request)
            .or_else(|| b.client_address(request))
    }
}

impl<A: KeyExtractor> KeyExtractor for OrShared<A> {
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        self.combine(|a| a.extract(request))
    }

    fn client_address(&self, request: &Parts) -> Option<Result<ClientAddress, KeyError>> {
        self.part().client_address(request)
    }
}
