//! The keys by which requests are counted.

mod client;

use http::{HeaderName, HeaderValue, request::Parts};
use ratelimit_core::Key;
/// ```
/// use ratelimit_core::Key;
/// use ratelimit_tower::{ExtensionKey, KeyExtractor};
///
/// #[derive(Clone)]
/// struct User(u64);
///
/// let by_user = ExtensionKey::new(|user: &User| Ok(Key::tagged("user", user.0.to_string())?));
/// let (request, ()) = http::Request::builder().extension(User(7)).body(())?.into_parts();
/// assert_eq!(by_user.extract(&request)?.as_str(), "user:7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(inline)]
pub use ratelimit_http::key::ExtensionKey;
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
use ratelimit_http::{key::KeyKinds, key_extractor};

pub use self::client::ClientKey;
use crate::framework::Head;

/// The value of one header, for headers that a gateway sets or checks.
///
/// An absent or empty header is missing, two lines are ambiguous. A client that can write the header itself
/// can escape its limit.
///
/// ```
/// use http::HeaderName;
/// use ratelimit_tower::{ClientKey, HeaderKey, KeyExtractor};
///
/// let tenant = HeaderKey::new(HeaderName::from_static("x-tenant")).or(ClientKey::new());
/// # let _ = tenant;
/// ```
pub type HeaderKey = ratelimit_http::key::HeaderKey<HeaderName>;

key_extractor! {
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
    trait KeyExtractor(Parts as Head) for ApiKey, CookieKey, MethodKey, PathKey, QueryKey
}

impl KeyExtractor for HeaderKey {
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        let lines = request.headers.get_all(self.name()).iter();
        self.extract_key(lines.map(HeaderValue::as_bytes))
    }

    fn key_kinds(&self) -> KeyKinds {
        self.kinds()
    }
}
