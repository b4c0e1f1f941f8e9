//! Whose budget is spent.

mod client;
mod combine;
mod named;

use std::fmt;

use actix_web::HttpRequest;
use ratelimit_core::{InvalidKey, Key, NoClient};

pub use self::{
    client::ClientKey,
    combine::{Both, Either, OrShared},
    named::{ApiKey, CookieKey, HeaderKey, MethodKey, QueryKey, RouteKey},
};

/// Finds the key of a request.
///
/// A function of the request is one:
///
/// ```
/// use actix_web::{HttpRequest, test::TestRequest};
/// use ratelimit_actix::{Key, KeyExtractor, NoKey};
///
/// fn by_tenant(request: &HttpRequest) -> Result<Key, NoKey> {
///     let tenant = request.headers().get("x-tenant").ok_or(NoKey::Missing)?;
///     Ok(Key::tagged("tenant", tenant)?)
/// }
///
/// let request = TestRequest::get().insert_header(("x-tenant", "acme")).to_http_request();
/// assert_eq!(by_tenant.extract(&request)?.as_str(), "tenant:acme");
/// # Ok::<(), NoKey>(())
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
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey>;

    /// The key of both, "address and route" or "tenant and user".
    ///
    /// Whatever bytes the parts hold, different pairs are different keys.
    fn and<K: KeyExtractor>(self, other: K) -> Both<Self, K>
    where
        Self: Sized,
    {
        Both(self, other)
    }

    /// The key of `next` where this one is missing.
    fn or<K: KeyExtractor>(self, next: K) -> Either<Self, K>
    where
        Self: Sized,
    {
        Either(self, next)
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
    F: Fn(&HttpRequest) -> Result<Key, NoKey> + Send + Sync + 'static,
{
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey> {
        self(request)
    }
}

/// Why a request has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoKey {
    /// The request does not have what the key is made of: 400.
    Missing,
    /// What the request names cannot be a key: 400.
    BadKey,
    /// The request names more than one key: 400.
    AmbiguousKey,
    /// The peer's address is unknown, which is for the service to set right: 500.
    NoClient,
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoKey::Missing => "the request does not have what its key is made of",
            NoKey::BadKey => "the request names a key that cannot be one",
            NoKey::AmbiguousKey => "the request names more than one key",
            NoKey::NoClient => "the request has no client address",
        })
    }
}

impl std::error::Error for NoKey {}

impl From<NoClient> for NoKey {
    fn from(why: NoClient) -> NoKey {
        match why {
            NoClient::BadKey => NoKey::BadKey,
            NoClient::AmbiguousKey => NoKey::AmbiguousKey,
            _ => NoKey::NoClient,
        }
    }
}

impl From<InvalidKey> for NoKey {
    fn from(why: InvalidKey) -> NoKey {
        match why {
            InvalidKey::Empty => NoKey::Missing,
            _ => NoKey::BadKey,
        }
    }
}
