//! Budgets in memory that nothing but time forgets.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use ratelimit_core::{Clock, Decision, Hit, Key, KeySet, MemoryStore, Policy, Store, StoreFuture};

/// Room for one key, whatever it has to remember.
const ROOM: usize = 1_000;

/// A memory store for each key.
///
/// One store for all keys forgets what has expired as others come. That shows only when the clock
/// steps back, as that of a trace may and Redis would not forget.
#[derive(Debug)]
pub(super) struct Memory {
    clock: Clock,
    stores: Mutex<HashMap<(String, Key), MemoryStore>>,
}

impl Memory {
    pub(super) fn new(clock: Clock) -> Memory {
        Memory {
            clock,
            stores: Mutex::default(),
        }
    }

    fn store(&self, policy: &Policy, key: &Key) -> MemoryStore {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let whose = (policy.name().to_owned(), key.clone());
        let store = stores.entry(whose).or_insert_with(|| {
            let clock = self.clock.clone();
            MemoryStore::new().capacity(ROOM).clock(clock)
        });
        store.clone()
    }
}

impl Store for Memory {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision> {
        self.store(hit.policy, hit.key).hit(hit)
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        self.store(policy, keys.primary()).reset(policy, keys)
    }
}
