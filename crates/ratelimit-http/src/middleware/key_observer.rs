//! Learning the kinds of keys from requests.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use crate::key::KeyKinds;
use ratelimit_core::Key;

/// The number of requests after which the kinds of keys count as known.
pub(crate) const MAX_OBSERVED: u32 = 1_000;

/// Learns the kinds of an extractor's keys, which a function or an extension cannot declare.
///
/// Afterwards it costs a request one atomic load.
#[derive(Debug, Default)]
pub(crate) struct KeyObserver {
    observed: AtomicU32,
    kinds: Mutex<KeyKinds>,
}

impl KeyObserver {
    /// The kinds of all keys, if enough were observed; otherwise unknown.
    pub(crate) fn kinds(&self) -> KeyKinds {
        if self.observed.load(Ordering::Relaxed) < MAX_OBSERVED {
            return KeyKinds::unknown();
        }
        let kinds = self.kinds.lock();
        kinds.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Observes one key, and returns whether it is the last.
    #[inline]
    pub(crate) fn observe(&self, key: &Key) -> bool {
        if self.observed.load(Ordering::Relaxed) >= MAX_OBSERVED {
            return false;
        }
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.learn(KeyKinds::of_key(key));
        self.observed.fetch_add(1, Ordering::Relaxed) + 1 == MAX_OBSERVED
    }
}
