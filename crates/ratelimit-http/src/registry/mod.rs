//! Policies by name, which operators change while a service runs.

mod reordered;
#[cfg(any(feature = "toml", feature = "yaml"))]
mod text;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt, mem,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

pub use self::reordered::log_reordered_limits;
#[cfg(any(feature = "toml", feature = "yaml"))]
pub use self::text::ReloadError;
use crate::handler::{DeclaredPolicy, MissingPolicies};
use crate::policy::HttpPolicy;

/// Policies by name: routes name them, and operators change their numbers.
///
/// Clones share everything, so that a change through one is seen by all who hold another. A policy
/// that keeps its name keeps what was spent under it: its next hit is decided by the new numbers.
///
/// ```
/// use ratelimit_core::Policy;
/// use ratelimit_http::registry::Registry;
///
/// let registry = Registry::from_policies([Policy::parse("login", "5/min")?]);
/// let of_a_route = registry.clone();
///
/// registry.insert(Policy::parse("login", "3/min")?);
/// assert_eq!(of_a_route.get("login").expect("is there").to_string(), "token_bucket 3/min");
/// # Ok::<(), ratelimit_core::InvalidPolicy>(())
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    shared: Arc<RegistryInner>,
}

#[derive(Default)]
struct RegistryInner {
    policies: RwLock<RegisteredPolicies>,
    version: AtomicU64,
}

#[derive(Default)]
struct RegisteredPolicies {
    by_name: ByName,
    /// Whether attributes look here, so that what they name has to stay.
    has_attributes: bool,
}

impl Registry {
    /// A registry without policies.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// A registry of these policies; of two with one name the later stays.
    pub fn from_policies(policies: impl IntoIterator<Item = impl Into<HttpPolicy>>) -> Registry {
        let registry = Registry::new();
        registry.change(|own| own.by_name = by_name(policies));
        registry
    }

    /// This registry, which from now on has every policy that an attribute of this program names.
    ///
    /// [`set_global_registry`](crate::handler::set_global_registry) asks for it; who gives a registry to an
    /// application in another way calls it at the start.
    ///
    /// Every `#[rate_limit(policy = "...")]` that is linked into the program counts, whether its
    /// handler is routed to or not. A later change that would take away one of their policies is
    /// refused.
    ///
    /// # Errors
    ///
    /// When a policy is missing: the error names each such attribute with its file and line.
    pub fn check_declared(self) -> Result<Registry, MissingPolicies> {
        self.try_change(|own| {
            refuse_without_attributes(&own.by_name)?;
            own.has_attributes = true;
            Ok(())
        })?;
        Ok(self)
    }

    /// The policy of that name, as it is now.
    pub fn get(&self, name: &str) -> Option<HttpPolicy> {
        let policies = self.shared.policies.read();
        let policies = policies.unwrap_or_else(PoisonError::into_inner);
        policies.by_name.get(name).cloned()
    }

    /// The names of all policies, in order.
    pub fn names(&self) -> Vec<Box<str>> {
        let policies = self.shared.policies.read();
        let policies = policies.unwrap_or_else(PoisonError::into_inner);
        policies.by_name.keys().cloned().collect()
    }

    /// Adds a policy, or changes the one of its name.
    ///
    /// As [`log_reordered_limits`], it logs a warning if limits move to other positions.
    pub fn insert(&self, policy: impl Into<HttpPolicy>) {
        let policy = policy.into();
        let (name, after) = (policy.name().into(), policy.clone());
        let mut before = None;
        self.change(|own| before = own.by_name.insert(name, policy));
        if let Some(before) = before {
            log_reordered_limits(before.policy(), after.policy());
        }
    }

    /// Puts these policies in place of all there are.
    ///
    /// As [`log_reordered_limits`], it logs a warning for each policy whose limits move to other
    /// positions.
    ///
    /// # Errors
    ///
    /// When attributes look here and one of their policies would be gone; then nothing has changed.
    pub fn replace(
        &self,
        policies: impl IntoIterator<Item = impl Into<HttpPolicy>>,
    ) -> Result<(), MissingPolicies> {
        let fresh = by_name(policies);
        let mut before = ByName::new();
        self.try_change(|own| {
            if own.has_attributes {
                refuse_without_attributes(&fresh)?;
            }
            before = mem::replace(&mut own.by_name, fresh.clone());
            Ok(())
        })?;
        for (name, policy) in &fresh {
            if let Some(before) = before.get(name) {
                log_reordered_limits(before.policy(), policy.policy());
            }
        }
        Ok(())
    }

    /// Grows with each change, so that who keeps a policy sees when to ask for it again.
    pub fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    fn change(&self, change: impl FnOnce(&mut RegisteredPolicies)) {
        let changed = self.try_change(|policies| {
            change(policies);
            Ok::<(), Infallible>(())
        });
        let Ok(()) = changed;
    }

    fn try_change<E>(
        &self,
        change: impl FnOnce(&mut RegisteredPolicies) -> Result<(), E>,
    ) -> Result<(), E> {
        let policies = self.shared.policies.write();
        let mut policies = policies.unwrap_or_else(PoisonError::into_inner);
        change(&mut policies)?;
        // While the lock is held: who sees the new number finds the new policies.
        self.shared.version.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

type ByName = BTreeMap<Box<str>, HttpPolicy>;

fn by_name(policies: impl IntoIterator<Item = impl Into<HttpPolicy>>) -> ByName {
    let policies = policies.into_iter().map(Into::into);
    let named = policies.map(|policy| (Box::from(HttpPolicy::name(&policy)), policy));
    named.collect()
}

fn refuse_without_attributes(policies: &ByName) -> Result<(), MissingPolicies> {
    let missing = MissingPolicies::among(policies.keys().map(|name| &**name));
    missing.map_or(Ok(()), Err)
}

/// A policy's name that no registry knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    name: String,
    known: Vec<Box<str>>,
    attribute: Option<DeclaredPolicy>,
}

impl UnknownPolicy {
    /// There is no policy called `name` in `registry`.
    pub fn new(name: &str, registry: &Registry) -> UnknownPolicy {
        UnknownPolicy {
            name: name.to_owned(),
            known: registry.names(),
            attribute: None,
        }
    }

    /// There is no policy in `registry` for `attribute`.
    pub fn for_declared(attribute: DeclaredPolicy, registry: &Registry) -> UnknownPolicy {
        UnknownPolicy {
            attribute: Some(attribute),
            ..UnknownPolicy::new(attribute.policy, registry)
        }
    }
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        let known = self.known.join(", ");
        match known.as_str() {
            "" => write!(f, "there is no policy {name:?}: the registry is empty")?,
            known => write!(f, "there is no policy {name:?} among {known}")?,
        }
        match &self.attribute {
            Some(attribute) => write!(f, ", for {attribute}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(names: &[&str]) -> Vec<HttpPolicy> {
        let policies = names.iter().map(|name| HttpPolicy::parse(name, "5/min"));
        policies.map(Result::unwrap).collect()
    }

    /// The attributes of this program name `buy` and `login`: see the tests of `attributes`.
    #[test]
    fn what_attributes_name_is_there_at_the_start_and_stays() {
        let lost = Registry::from_policies(policies(&["login"])).check_declared();
        assert_eq!(lost.unwrap_err().attributes().count(), 1);

        let registry = Registry::from_policies(policies(&["buy", "login"]));
        let registry = registry.check_declared().unwrap();
        let before = registry.version();
        let refused = registry.clone().replace(policies(&["buy", "api"]));

        let message = refused.unwrap_err().to_string();
        assert!(message.contains("shop::login at src/a.rs:3"), "{message}");
        assert_eq!(registry.names(), [Box::from("buy"), Box::from("login")]);
        assert_eq!(registry.version(), before);
        assert_eq!(registry.replace(policies(&["buy", "login", "api"])), Ok(()));
    }

    #[test]
    fn a_registry_without_attributes_changes_as_it_likes() {
        let registry = Registry::from_policies(policies(&["login"]));

        assert_eq!(registry.replace(policies(&["api"])), Ok(()));
        assert_eq!(registry.names(), [Box::from("api")]);
    }
}
