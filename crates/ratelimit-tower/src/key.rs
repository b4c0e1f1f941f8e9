//! Whose budget is spent.

mod client;
mod request;

use http::{HeaderName, HeaderValue, request::Parts};
use ratelimit_core::Key;
use ratelimit_core::adapter;
/// ```
/// use ratelimit_tower::{KeyExtractor, NoKey, PathKey};
///
/// let by_team = PathKey::new("/teams/{team}/members/{member}", "team");
/// let key_of = |path: &str| {
///     let request = http::Request::builder().uri(path).body(()).expect("a good path");
///     by_team.extract(&request.into_parts().0)
/// };
/// assert_eq!(key_of("/teams/r%65d/members/7")?.as_str(), "path:team:red");
/// assert_eq!(key_of("/teams"), Err(NoKey::Missing));
/// # Ok::<(), NoKey>(())
/// ```
#[doc(inline)]
pub use ratelimit_core::adapter::PathKey;
#[doc(inline)]
pub use ratelimit_core::adapter::{
    ApiKey, Both, CookieKey, Either, MethodKey, NoKey, OrShared, QueryKey, Whereabouts,
};

pub use self::{
    client::{ClientKey, PeerAddr, WithPeer},
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
pub type HeaderKey = adapter::HeaderKey<HeaderName>;

/// Finds the key of a request.
///
/// A function of the request's head is one:
///
/// ```
/// use http::request::Parts;
/// use ratelimit_core::Key;
/// use ratelimit_tower::{KeyExtractor, NoKey};
///
/// fn by_tenant(request: &Parts) -> Result<Key, NoKey> {
///     let tenant = request.headers.get("x-tenant").ok_or(NoKey::Missing)?;
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
    fn extract(&self, request: &Parts) -> Result<Key, NoKey>;

    /// Where the client is, if this finds clients by their address: for limits that count by `ip`, and
    /// for rules about addresses.
    fn whereabouts(&self, _request: &Parts) -> Option<Result<Whereabouts, NoKey>> {
        None
    }

    /// The key of both, "address and route" or "tenant and user".
    ///
    /// Whatever bytes the parts hold, different pairs are different keys.
    fn and<K: KeyExtractor>(self, other: K) -> Both<Self, K>
    where
        Self: Sized,
    {
        Both::new(self, other)
    }

    /// The key of `next` where this one is missing.
    fn or<K: KeyExtractor>(self, next: K) -> Either<Self, K>
    where
        Self: Sized,
    {
        Either::new(self, next)
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
    F: Fn(&Parts) -> Result<Key, NoKey> + Send + Sync + 'static,
{
    fn extract(&self, request: &Parts) -> Result<Key, NoKey> {
        self(request)
    }
}

impl KeyExtractor for HeaderKey {
    fn extract(&self, request: &Parts) -> Result<Key, NoKey> {
        let lines = request.headers.get_all(self.name()).iter();
        self.find(lines.map(HeaderValue::as_bytes))
    }
}

macro_rules! found_in_the_head {
    ($($source:ty),*) => {$(
        impl KeyExtractor for $source {
            fn extract(&self, request: &Parts) -> Result<Key, NoKey> {
                self.find(&Head(request))
            }
        }
    )*};
}

found_in_the_head!(ApiKey, CookieKey, MethodKey, PathKey, QueryKey);

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Both<A, B> {
    fn extract(&self, request: &Parts) -> Result<Key, NoKey> {
        self.find(|a| a.extract(request), |b| b.extract(request))
    }

    fn whereabouts(&self, request: &Parts) -> Option<Result<Whereabouts, NoKey>> {
        let (a, b) = self.parts();
        a.whereabouts(request).or_else(|| b.whereabouts(request))
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Either<A, B> {
    fn extract(&self, request: &Parts) -> Result<Key, NoKey> {
        self.find(|a| a.extract(request), |b| b.extract(request))
    }

    fn whereabouts(&self, request: &Parts) -> Option<Result<Whereabouts, NoKey>> {
        let (a, b) = self.parts();
        a.whereabouts(request).or_else(|| b.whereabouts(request))
    }
}

impl<A: KeyExtractor> KeyExtractor for OrShared<A> {
    fn extract(&self, request: &Parts) -> Result<Key, NoKey> {
        self.find(|a| a.extract(request))
    }

    fn whereabouts(&self, request: &Parts) -> Option<Result<Whereabouts, NoKey>> {
        self.part().whereabouts(request)
    }
}
