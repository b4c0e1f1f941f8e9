//! Keys made of other keys.

use actix_web::HttpRequest;
use ratelimit_core::Key;

use super::{KeyExtractor, NoKey};

/// The key of both, made by [`KeyExtractor::and`].
#[derive(Clone, Copy, Debug)]
pub struct Both<A, B>(pub(super) A, pub(super) B);

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Both<A, B> {
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey> {
        let first = self.0.extract(request)?;
        Ok(first.and(&self.1.extract(request)?))
    }
}

/// The first key that is there, made by [`KeyExtractor::or`].
#[derive(Clone, Copy, Debug)]
pub struct Either<A, B>(pub(super) A, pub(super) B);

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Either<A, B> {
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey> {
        match self.0.extract(request) {
            Err(NoKey::Missing) => self.1.extract(request),
            found => found,
        }
    }
}

/// One budget for all who have no key, made by [`KeyExtractor::or_shared`].
#[derive(Clone, Debug)]
pub struct OrShared<A> {
    extractor: A,
    shared: Key,
}

impl<A> OrShared<A> {
    pub(super) fn new(extractor: A, name: &str) -> OrShared<A> {
        let shared = Key::tagged("shared", name).expect("a shared budget has a name");
        OrShared { extractor, shared }
    }
}

impl<A: KeyExtractor> KeyExtractor for OrShared<A> {
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey> {
        match self.extractor.extract(request) {
            Err(NoKey::Missing) => Ok(self.shared.clone()),
            found => found,
        }
    }
}
