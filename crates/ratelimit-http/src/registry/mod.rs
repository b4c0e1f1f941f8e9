//! Policies by name, which can be changed while a service runs.

mod declared;
mod reordered;
#[cfg(test)]
mod test_log;
#[cfg(any(feature = "toml", feature = "yaml"))]
mod text;
#[cfg(any(feature = "toml", feature = "yaml"))]
mod watch;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt, mem,
    sync::{
        Arc, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

pub use self::{
    declared::{DeclaredPolicy, MissingPolicies},
    reordered::log_reordered_limits,
};
#[cfg(any(feature = "toml", feature = "yaml"))]
pub use self::{text::ReloadError, watch::PolicyFileWatch};
use crate::policy::HttpPolicy;

/// Policies by name, for layers and handlers that name their policy.
///
/// - Clones share their policies: a change through one is visible through all.
/// - A layer follows the registry. The next request after a change is decided by the new limits.
/// - A changed policy with the same name keeps the spent budgets. A limit is identified by its position,
///   so add new limits at the end; moved limits are logged as a warning.
/// - A registry never loses a policy while a layer uses it. One that was
///   [checked](Registry::check_declared) never loses a policy that a handler's attribute names either.
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
#[doc(alias = "hot reload")]
#[derive(Clone, Default)]
pub struct Registry {
    shared: Arc<RegistryInner>,
}

/// The policies that all clones share.
#[derive(Default)]
struct RegistryInner {
    policies: RwLock<RegisteredPolicies>,
    version: AtomicU64,
}

/// The policies under the lock.
#[derive(Default)]
struct RegisteredPolicies {
    by_name: ByName,
    /// Whether attributes use this registry, so that the policies they name have to stay.
    is_declared: bool,
    /// The names that layers use, so that their policies have to stay. A layer that is dropped drops its name.
    of_layers: Vec<Weak<str>>,
}

impl RegisteredPolicies {
    /// Checks that `policies` has those that the program uses.
    fn check_used_in(&self, policies: &ByName) -> Result<(), MissingPolicies> {
        let known = policies.keys().map(|name| &**name);
        let layers = self.of_layers.iter().filter_map(Weak::upgrade);
        MissingPolicies::among(known, self.is_declared, layers).map_or(Ok(()), Err)
    }
}

impl Registry {
    /// A registry without policies.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// A registry of these policies. Of two with the same name the later is kept.
    pub fn from_policies(policies: impl IntoIterator<Item = impl Into<HttpPolicy>>) -> Registry {
        let registry = Registry::new();
        registry.change(|own| own.by_name = by_name(policies));
        registry
    }

    /// Checks that the registry has every policy that an attribute of the program names, now and after
    /// each change.
    ///
    /// - [`set_global_registry`](crate::handler::set_global_registry) calls it. Call it at the start of
    ///   `main` if you pass the registry to the application in another way.
    /// - Every `#[rate_limit(policy = "...")]` that is linked into the program is checked, whether its
    ///   handler is routed or not.
    /// - A later [`replace`](Registry::replace) that would remove such a policy is rejected.
    ///
    /// # Errors
    ///
    /// [`MissingPolicies`] if a policy is missing. It lists each such attribute with its file and line.
    pub fn check_declared(self) -> Result<Registry, MissingPolicies> {
        self.try_change(|own| {
            let known = own.by_name.keys().map(|name| &**name);
            if let Some(missing) = MissingPolicies::among(known, true, [""; 0]) {
                return Err(missing);
            }
            own.is_declared = true;
            Ok(())
        })?;
        Ok(self)
    }

    /// The current policy called `name`.
    ///
    /// ```
    /// use ratelimit_core::Policy;
    /// use ratelimit_http::registry::Registry;
    ///
    /// let registry = Registry::from_policies([Policy::parse("login", "5/min")?]);
    /// assert_eq!(registry.get("login").expect("was added").name(), "login");
    /// assert!(registry.get("api").is_none());
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    pub fn get(&self, name: &str) -> Option<HttpPolicy> {
        let policies = self.shared.policies.read();
        let policies = policies.unwrap_or_else(PoisonError::into_inner);
        policies.by_name.get(name).cloned()
    }

    /// The current policy called `name`, for a layer. It cannot be removed while the name that is returned exists.
    pub(crate) fn get_for_layer(&self, name: &str) -> Option<(HttpPolicy, Arc<str>)> {
        let policies = self.shared.policies.write();
        let mut policies = policies.unwrap_or_else(PoisonError::into_inner);
        let policy = policies.by_name.get(name)?.clone();
        let name: Arc<str> = Arc::from(name);
        policies.of_layers.retain(|name| name.strong_count() > 0);
        policies.of_layers.push(Arc::downgrade(&name));
        Some((policy, name))
    }

    /// The names of all policies, in alphabetical order.
    pub fn names(&self) -> Vec<Box<str>> {
        let policies = self.shared.policies.read();
        let policies = policies.unwrap_or_else(PoisonError::into_inner);
        policies.by_name.keys().cloned().collect()
    }

    /// Adds a policy, or replaces the one with the same name.
    ///
    /// It logs a warning if limits move to other positions: see [`log_reordered_limits`].
    pub fn insert(&self, policy: impl Into<HttpPolicy>) {
        let policy = policy.into();
        let (name, after) = (policy.name().into(), policy.clone());
        let mut before = None;
        self.change(|own| before = own.by_name.insert(name, policy));
        if let Some(before) = before {
            log_reordered_limits(before.policy(), after.policy());
        }
    }

    /// Replaces all policies at once.
    ///
    /// It logs a warning for each policy whose limits move to other positions: see
    /// [`log_reordered_limits`].
    ///
    /// ```
    /// use ratelimit_core::Policy;
    /// use ratelimit_http::registry::Registry;
    ///
    /// let registry = Registry::from_policies([Policy::parse("login", "5/min")?]);
    /// let before = registry.version();
    /// registry.replace([Policy::parse("api", "100/min")?])?;
    /// assert!(registry.get("login").is_none());
    /// assert!(registry.version() > before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`MissingPolicies`] if a policy would be removed that a layer uses or, if the registry was
    /// [checked](Registry::check_declared), one that an attribute names. The registry is then unchanged.
    pub fn replace(
        &self,
        policies: impl IntoIterator<Item = impl Into<HttpPolicy>>,
    ) -> Result<(), MissingPolicies> {
        let fresh = by_name(policies);
        let mut before = ByName::new();
        self.try_change(|own| {
            own.check_used_in(&fresh)?;
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

    /// A number that grows with each change.
    ///
    /// A caller that caches a policy compares it to find out when to look the policy up again.
    pub fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    /// Changes the policies and raises the version.
    fn change(&self, change: impl FnOnce(&mut RegisteredPolicies)) {
        let changed = self.try_change(|policies| {
            change(policies);
            Ok::<(), Infallible>(())
        });
        let Ok(()) = changed;
    }

    /// Changes the policies and raises the version, or does neither.
    fn try_change<E>(
        &self,
        change: impl FnOnce(&mut RegisteredPolicies) -> Result<(), E>,
    ) -> Result<(), E> {
        let policies = self.shared.policies.write();
        let mut policies = policies.unwrap_or_else(PoisonError::into_inner);
        change(&mut policies)?;
        // The lock is held, so a reader that sees the new version also finds the new policies.
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

/// Sorts policies by name. Of two with the same name the later is kept.
fn by_name(policies: impl IntoIterator<Item = impl Into<HttpPolicy>>) -> ByName {
    let policies = policies.into_iter().map(Into::into);
    let named = policies.map(|policy| (Box::from(HttpPolicy::name(&policy)), policy));
    named.collect()
}

/// The name of a policy that a registry does not have.
///
/// The message lists the names that it has.
///
/// ```
/// use ratelimit_core::Policy;
/// use ratelimit_http::registry::{Registry, UnknownPolicy};
///
/// let registry = Registry::from_policies([Policy::parse("login", "5/min")?]);
/// let error = UnknownPolicy::new("logn", &registry);
/// assert_eq!(error.to_string(), "there is no policy \"logn\" among login");
/// # Ok::<(), ratelimit_core::InvalidPolicy>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownPolicy {
    name: String,
    known: Vec<Box<str>>,
    attribute: Option<DeclaredPolicy>,
}

impl UnknownPolicy {
    /// The error for `name`, which is not in `registry`.
    pub fn new(name: &str, registry: &Registry) -> UnknownPolicy {
        UnknownPolicy {
            name: name.to_owned(),
            known: registry.names(),
            attribute: None,
        }
    }

    /// The error for a handler's attribute whose policy is not in `registry`.
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

debug_as_display!(UnknownPolicy);

impl std::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(names: &[&str]) -> Vec<HttpPolicy> {
        let policies = names.iter().map(|name| HttpPolicy::parse(name, "5/min"));
        policies.map(Result::unwrap).collect()
    }

    /// The attributes of this program name `buy` and `login`: see the tests of `handler/declared.rs`.
    #[test]
    fn declared_policies_are_present_at_the_start_and_stay() {
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
    fn the_policy_of_a_layer_stays_as_long_as_the_layer() {
        let registry = Registry::from_policies(policies(&["login", "api"]));
        let (_, layer) = registry.get_for_layer("login").unwrap();
        let clone = Arc::clone(&layer);

        drop(layer);
        let refused = registry.replace(policies(&["api"])).unwrap_err();

        assert_eq!(refused.layers().collect::<Vec<_>>(), ["login"]);
        assert_eq!(
            refused.to_string(),
            "the registry has no policy for the layer of \"login\"; add it, or write one of: api"
        );
        assert_eq!(registry.names().len(), 2);
        assert_eq!(registry.replace(policies(&["login"])), Ok(()));
        drop(clone);
        assert_eq!(registry.replace(policies(&["api"])), Ok(()));
    }

    #[test]
    fn an_unchecked_registry_can_lose_any_policy() {
        let registry = Registry::from_policies(policies(&["login"]));

        assert_eq!(registry.replace(policies(&["api"])), Ok(()));
        assert_eq!(registry.names(), [Box::from("api")]);
    }
}
