//! Policies by name, which operators change while a service runs.

#[cfg(any(feature = "toml", feature = "yaml"))]
mod text;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::policy::Policy;

/// Policies by name: routes name them, and operators change their numbers.
///
/// Clones share everything, so that a change through one is seen by all who hold another. A policy
/// that keeps its name keeps what was spent under it: its next hit is decided by the new numbers.
///
/// ```
/// use ratelimit_core::{Policy, Registry};
///
/// let registry = Registry::of([Policy::parse("login", "5/min")?]);
/// let of_a_route = registry.clone();
///
/// registry.insert(Policy::parse("login", "3/min")?);
/// assert_eq!(of_a_route.get("login").expect("is there").to_string(), "token_bucket 3/min");
/// # Ok::<(), ratelimit_core::InvalidPolicy>(())
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    policies: RwLock<BTreeMap<Box<str>, Policy>>,
    version: AtomicU64,
}

impl Registry {
    /// A registry without policies.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// A registry of these policies; of two with one name the later stays.
    pub fn of(policies: impl IntoIterator<Item = Policy>) -> Registry {
        let registry = Registry::new();
        registry.replace(policies);
        registry
    }

    /// The policy of that name, as it is now.
    pub fn get(&self, name: &str) -> Option<Policy> {
        let policies = self.shared.policies.read();
        let policies = policies.unwrap_or_else(PoisonError::into_inner);
        policies.get(name).cloned()
    }

    /// The names of all policies, in order.
    pub fn names(&self) -> Vec<Box<str>> {
        let policies = self.shared.policies.read();
        let policies = policies.unwrap_or_else(PoisonError::into_inner);
        policies.keys().cloned().collect()
    }

    /// Adds a policy, or changes the one of its name.
    pub fn insert(&self, policy: Policy) {
        self.change(|policies| {
            policies.insert(policy.name().into(), policy);
        });
    }

    /// Puts these policies in place of all there are.
    pub fn replace(&self, policies: impl IntoIterator<Item = Policy>) {
        let named = policies.into_iter();
        let named = named.map(|policy| (Box::from(policy.name()), policy));
        let fresh: BTreeMap<_, _> = named.collect();
        self.change(|policies| *policies = fresh);
    }

    /// Grows with each change, so that who keeps a policy sees when to ask for it again.
    pub fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Box<str>, Policy>)) {
        let policies = self.shared.policies.write();
        let mut policies = policies.unwrap_or_else(PoisonError::into_inner);
        change(&mut policies);
        // While the lock is held: who sees the new number finds the new policies.
        self.shared.version.fetch_add(1, Ordering::Release);
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// A policy's name that no registry knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    name: String,
    known: Vec<Box<str>>,
}

impl UnknownPolicy {
    /// There is no policy called `name` in `registry`.
    pub fn new(name: &str, registry: &Registry) -> UnknownPolicy {
        UnknownPolicy {
            name: name.to_owned(),
            known: registry.names(),
        }
    }
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        if self.known.is_empty() {
            return write!(f, "there is no policy {name:?}: the registry is empty");
        }
        let known = self.known.join(", ");
        write!(f, "there is no policy {name:?} among {known}")
    }
}

impl std::error::Error for UnknownPolicy {}
