//! Keys from the request's extensions.

use std::{fmt, marker::PhantomData};

use ratelimit_core::Key;

use crate::{framework::RequestHead, key::KeyError};

/// A key from a value in the request's extensions, such as the authenticated user.
///
/// - A middleware in front of the limit puts the value there; it may be asynchronous and ask a database.
/// - The key is missing if the request has no value of type `T`. Combine it with `or` or `or_shared` for
///   anonymous requests.
/// - Under axum, `.layer(...)` that is added last runs first: add the middleware after the limit.
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
    /// `key` returns what a function that is a `KeyExtractor` of the adapter returns: [`KeyError::Missing`] from it lets
    /// `or` and `or_shared` use another key.
    pub const fn new(key: F) -> ExtensionKey<T, F> {
        ExtensionKey {
            key,
            _extension: PhantomData,
        }
    }

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// [`KeyError::Missing`] if the request has no such extension, or the error of the function.
    pub fn extract_key(&self, request: &impl RequestHead) -> Result<Key, KeyError> {
        request.extension(&self.key).ok_or(KeyError::Missing)?
    }
}

impl<T, F> fmt::Debug for ExtensionKey<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtensionKey<{}>", std::any::type_name::<T>())
    }
}
