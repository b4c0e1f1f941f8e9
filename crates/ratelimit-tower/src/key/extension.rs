//! Keys from the request's extensions.

use std::{fmt, marker::PhantomData};

use http::request::Parts;
use ratelimit_core::Key;

use super::{KeyError, KeyExtractor};

/// A key from a value in the request's extensions, such as the authenticated user.
///
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
///
/// A rule or a tenant of a policy names such a key as it prints, `printed:user:7`. The text `key:user:7` is
/// the key [`Key::new`] of `user:7`, which is another one.
///
/// ```
/// use ratelimit_core::Key;
/// use ratelimit_http::policy::{HttpPolicy, Rule};
///
/// let rule: Rule = "printed:user:7".parse()?;
/// assert_eq!(rule, Rule::from(Key::tagged("user", "7")?));
/// let policy = HttpPolicy::parse("api", "100/min")?.with_block_rule(rule);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExtensionKey<T, F> {
    key: F,
    _extension: PhantomData<fn(&T)>,
}

impl<T, F> ExtensionKey<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Result<Key, KeyError> + Send + Sync + 'static,
{
    /// Makes the key with `key` from the extension of type `T`. It is missing if there is no such extension.
    ///
    /// `key` returns what a function that is a [`KeyExtractor`] returns: [`KeyError::Missing`] from it lets
    /// `or` and `or_shared` use another key.
    pub const fn new(key: F) -> ExtensionKey<T, F> {
        ExtensionKey {
            key,
            _extension: PhantomData,
        }
    }
}

impl<T, F> KeyExtractor for ExtensionKey<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Result<Key, KeyError> + Send + Sync + 'static,
{
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        let extension = request.extensions.get::<T>().ok_or(KeyError::Missing)?;
        (self.key)(extension)
    }
}

impl<T, F> fmt::Debug for ExtensionKey<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtensionKey<{}>", std::any::type_name::<T>())
    }
}
