//! Keys made of other keys.

use crate::key::error::KeyError;
use ratelimit_core::Key;

/// The key of both, made by `KeyExtractor::and`.
#[derive(Clone, Copy, Debug)]
pub struct And<A, B>(A, B);

impl<A, B> And<A, B> {
    /// The two that it is made of.
    pub const fn parts(&self) -> (&A, &B) {
        (&self.0, &self.1)
    }

    /// The key of `first` and of `second` together.
    pub const fn new(first: A, second: B) -> And<A, B> {
        And(first, second)
    }

    /// The key of both, each found by its function.
    ///
    /// # Errors
    ///
    /// When one of them has none.
    pub fn combine(
        &self,
        first: impl FnOnce(&A) -> Result<Key, KeyError>,
        second: impl FnOnce(&B) -> Result<Key, KeyError>,
    ) -> Result<Key, KeyError> {
        let first = first(&self.0)?;
        Ok(first.join(&second(&self.1)?))
    }
}

/// The first key that is there, made by `KeyExtractor::or`.
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B>(A, B);

impl<A, B> Or<A, B> {
    /// The two that it is made of.
    pub const fn parts(&self) -> (&A, &B) {
        (&self.0, &self.1)
    }

    /// The key of `first`, or that of `second` where the first is missing.
    pub const fn new(first: A, second: B) -> Or<A, B> {
        Or(first, second)
    }

    /// The first key that is there, each found by its function.
    ///
    /// # Errors
    ///
    /// When there is none, or the first is there and cannot be a key.
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

/// One budget for all who have no key, made by `KeyExtractor::or_shared`.
#[derive(Clone, Debug)]
pub struct OrShared<A> {
    extractor: A,
    shared: Key,
}

impl<A> OrShared<A> {
    /// What it is made of.
    pub const fn part(&self) -> &A {
        &self.extractor
    }

    /// The key of `extractor`, or the budget called `name` where it is missing.
    ///
    /// # Panics
    ///
    /// When `name` is empty.
    pub fn new(extractor: A, name: &str) -> OrShared<A> {
        let shared = Key::tagged("shared", name).expect("a shared budget has a name");
        OrShared { extractor, shared }
    }

    /// The key that the function finds, or the shared one.
    ///
    /// # Errors
    ///
    /// When the request has what cannot be a key.
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
