//! Combinators of key extractors.

use crate::key::{error::KeyError, kinds::KeyKinds};
use ratelimit_core::Key;

/// The combination of two keys, made by `KeyExtractor::and`.
///
/// Different pairs never produce the same key, whatever bytes they contain.
#[derive(Clone, Copy, Debug)]
pub struct And<A, B>(A, B);

impl<A, B> And<A, B> {
    /// Both extractors.
    pub const fn parts(&self) -> (&A, &B) {
        (&self.0, &self.1)
    }

    /// Combines `first` and `second`.
    pub const fn new(first: A, second: B) -> And<A, B> {
        And(first, second)
    }

    /// Joins the keys that the functions find with the two extractors.
    ///
    /// ```
    /// use ratelimit_core::Key;
    /// use ratelimit_http::key::{And, KeyError};
    ///
    /// let both = And::new("alice", "/search");
    /// let key = both.combine(|user| Ok(Key::tagged("user", user)?), |path| Ok(Key::tagged("path", path)?))?;
    /// assert_ne!(key, Key::tagged("user", "alice")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `first`, or else of `second`.
    pub fn combine(
        &self,
        first: impl FnOnce(&A) -> Result<Key, KeyError>,
        second: impl FnOnce(&B) -> Result<Key, KeyError>,
    ) -> Result<Key, KeyError> {
        let first = first(&self.0)?;
        Ok(first.join(&second(&self.1)?))
    }
}

/// The first key that is present, made by `KeyExtractor::or`.
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B>(A, B);

impl<A, B> Or<A, B> {
    /// Both extractors.
    pub const fn parts(&self) -> (&A, &B) {
        (&self.0, &self.1)
    }

    /// Uses `second` if the key of `first` is missing.
    pub const fn new(first: A, second: B) -> Or<A, B> {
        Or(first, second)
    }

    /// The first key that the functions find with the two extractors.
    ///
    /// ```
    /// use ratelimit_core::Key;
    /// use ratelimit_http::key::{KeyError, Or};
    ///
    /// let either = Or::new(None, Some("alice"));
    /// let extract = |user: &Option<&str>| Ok(Key::tagged("user", user.ok_or(KeyError::Missing)?)?);
    /// assert_eq!(either.combine(extract, extract)?.as_str(), "user:alice");
    /// # Ok::<(), KeyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `first` unless it is [`KeyError::Missing`], or else of `second`: a malformed key
    /// is rejected and does not fall through.
    pub fn combine(
        &self,
        first: impl FnOnce(&A) -> Result<Key, KeyError>,
        second: impl FnOnce(&B) -> Result<Key, KeyError>,
    ) -> Result<Key, KeyError> {
        match first(&self.0) {
            Err(KeyError::Missing) => second(&self.1),
            found => found,
        }
    }
}

/// A key with one shared budget for all requests that do not have it, made by
/// `KeyExtractor::or_shared`.
#[derive(Clone, Debug)]
pub struct OrShared<A> {
    extractor: A,
    shared: Key,
}

impl<A> OrShared<A> {
    /// The extractor of the key.
    pub const fn part(&self) -> &A {
        &self.extractor
    }

    /// Uses the budget called `name` if the key of `extractor` is missing.
    ///
    /// # Panics
    ///
    /// If `name` is empty.
    pub fn new(extractor: A, name: &str) -> OrShared<A> {
        let shared = Key::tagged("shared", name).expect("a shared budget has a name");
        OrShared { extractor, shared }
    }

    /// The kinds of keys that it makes, if its extractor makes `kinds`.
    pub fn kinds(&self, kinds: KeyKinds) -> KeyKinds {
        kinds.or(KeyKinds::tagged("shared"))
    }

    /// The key that the function finds, or the shared one if it is missing.
    ///
    /// ```
    /// use ratelimit_http::key::{KeyError, OrShared};
    ///
    /// let anonymous = OrShared::new((), "anonymous");
    /// assert_eq!(anonymous.combine(|()| Err(KeyError::Missing))?.as_str(), "shared:anonymous");
    /// assert_eq!(anonymous.combine(|()| Err(KeyError::Invalid)), Err(KeyError::Invalid));
    /// # Ok::<(), KeyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the function unless it is [`KeyError::Missing`].
    pub fn combine(
        &self,
        extract: impl FnOnce(&A) -> Result<Key, KeyError>,
    ) -> Result<Key, KeyError> {
        match extract(&self.extractor) {
            Err(KeyError::Missing) => Ok(self.shared.clone()),
            found => found,
        }
    }
}
