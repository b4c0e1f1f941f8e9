//! The budgets of limits that requests bring along.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::rule::{unit::Rate, window::Window};

/// The most budgets in the cache. Routes of Envoy have a few limits; one from a request's metadata may have any value.
const MAX_OVERRIDES: usize = 1_024;

/// Budgets by the name of their policy and their rate.
///
/// A full cache is emptied: budgets in use are built again with their next request. Counts are in the store.
#[derive(Debug, Default)]
pub(crate) struct OverrideCache(Mutex<HashMap<(String, Rate), Window>>);

impl OverrideCache {
    /// The budget of `rate` under the policy of that name; `None` if it cannot be counted.
    pub(crate) fn get(&self, policy_name: String, rate: Rate) -> Option<Window> {
        let key = (policy_name, rate);
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = windows.get(&key) {
            return Some(known.clone());
        }
        let window = Window::new(&key.0, rate).ok()?;
        if windows.len() >= MAX_OVERRIDES {
            windows.clear();
        }
        windows.insert(key, window.clone());
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Unit;

    #[test]
    fn limits_of_requests_are_kept_up_to_a_bound() {
        let cache = OverrideCache::default();
        for requests in 1..=5_000 {
            let rate = Rate::per(Unit::Hour, requests);
            let window = cache.get("a".to_owned(), rate).expect("it can be counted");
            assert_eq!(window.rate, rate);
            let len = cache.0.lock().expect("no thread panicked").len();
            assert!((1..=MAX_OVERRIDES).contains(&len), "{len}");
        }
        let countless = Rate::per(Unit::Year, u32::MAX);
        assert!(cache.get("a".to_owned(), countless).is_none());
    }

    #[test]
    fn a_known_limit_is_not_built_again() {
        let cache = OverrideCache::default();
        let rate = Rate::per(Unit::Hour, 5);
        for name in ["a", "b", "a"] {
            let window = cache.get(name.to_owned(), rate).expect("it can be counted");
            assert_eq!(window.charge.name(), name);
        }
        assert_eq!(cache.0.lock().expect("no thread panicked").len(), 2);
    }
}
