//! The process-wide limiter and registry of `#[rate_limit]`.

use std::{
    error, fmt,
    sync::{Once, OnceLock},
};

use crate::registry::{MissingPolicies, Registry};
use ratelimit_core::{InvalidPolicy, Limiter, Policy};

/// The limiter that [`set_global_limiter`] sets.
static LIMITER: OnceLock<Limiter> = OnceLock::new();
/// The registry that [`set_global_registry`] sets.
static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// Sets the limiter of `#[rate_limit(...)]`, for requests that carry no other in their extensions.
///
/// Call it once at the start of `main`. Without it, handlers count in the memory of the process, and the
/// first request logs a warning.
///
/// ```
/// use ratelimit_core::Limiter;
/// use ratelimit_http::handler::{AlreadySet, set_global_limiter};
///
/// assert_eq!(set_global_limiter(Limiter::in_memory()), Ok(()));
/// assert_eq!(set_global_limiter(Limiter::in_memory()), Err(AlreadySet));
/// ```
///
/// # Errors
///
/// [`AlreadySet`] if a limiter was set before: budgets do not move while a process runs.
pub fn set_global_limiter(limiter: Limiter) -> Result<(), AlreadySet> {
    LIMITER.set(limiter).map_err(|_| AlreadySet)
}

/// Sets the registry of `#[rate_limit(policy = "...")]`, for requests that carry no other in their
/// extensions.
///
/// ```
/// use ratelimit_core::Policy;
/// use ratelimit_http::{handler::set_global_registry, registry::Registry};
///
/// let registry = Registry::from_policies([Policy::parse("login", "5/min")?]);
/// set_global_registry(registry.clone())?;
/// // Handlers with `#[rate_limit(policy = "login")]` use the new limits from the next request on.
/// registry.insert(Policy::parse("login", "3/min")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// - [`SetRegistryError::Missing`] if an attribute of the program names a policy that the registry does
///   not have, as in [`Registry::check_declared`].
/// - [`SetRegistryError::Already`] if a registry was set before. Change its policies instead.
pub fn set_global_registry(registry: Registry) -> Result<(), SetRegistryError> {
    if REGISTRY.get().is_some() {
        return Err(SetRegistryError::Already);
    }
    let registry = registry
        .check_declared()
        .map_err(SetRegistryError::Missing)?;
    REGISTRY
        .set(registry)
        .map_err(|_| SetRegistryError::Already)
}

/// The global limiter. If none was set, it is a limiter in memory, and the first call logs a warning.
pub fn global_limiter() -> Limiter {
    static IN_MEMORY: OnceLock<Limiter> = OnceLock::new();
    static WARNING: Once = Once::new();
    if let Some(limiter) = LIMITER.get() {
        return limiter.clone();
    }
    WARNING.call_once(|| {
        tracing::warn!(
            "no global limiter is set: handlers count in the memory of this process; \
             call set_global_limiter(limiter) at the start of main"
        );
    });
    IN_MEMORY.get_or_init(Limiter::in_memory).clone()
}

/// The global registry, or `None` if none was set.
pub fn global_registry() -> Option<Registry> {
    REGISTRY.get().cloned()
}

/// The policy of a handler, named after its path in the program.
///
/// A path that is not a valid name is shortened, its invalid characters become `_`, and a digest of the
/// whole path keeps different paths apart.
///
/// # Errors
///
/// [`InvalidPolicy`] if `limits` is not a list of limits such as `5/min; 20/h`.
pub fn policy_for_handler(path: &str, limits: &str) -> Result<Policy, InvalidPolicy> {
    if Policy::is_valid_name(path) {
        return Policy::parse(path, limits);
    }
    let digest = fnv1a(path.as_bytes());
    let plain = path.bytes().rev().take(Policy::MAX_NAME - 17);
    let plain = plain.map(char::from);
    let plain = plain.map(|char| match char {
        char if Policy::is_valid_name(char.encode_utf8(&mut [0; 4])) => char,
        _ => '_',
    });
    let mut name: String = plain.collect();
    // The end of a path is more specific than its beginning, so the end is kept.
    name = name.chars().rev().collect();
    Policy::parse(&format!("{digest:016x}.{name}"), limits)
}

/// FNV-1a, which gives the same digest in every build, unlike the hashers of the standard library.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The error of a second call to [`set_global_limiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadySet;

impl fmt::Display for AlreadySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is set already: set it once, at the start of main")
    }
}

impl error::Error for AlreadySet {}

/// The error of [`set_global_registry`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetRegistryError {
    /// A registry was set before.
    Already,
    /// Attributes of the program name policies that the registry does not have.
    Missing(MissingPolicies),
}

impl fmt::Display for SetRegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetRegistryError::Already => AlreadySet.fmt(f),
            SetRegistryError::Missing(missing) => missing.fmt(f),
        }
    }
}

impl error::Error for SetRegistryError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_handler_paths_give_different_policy_names() {
        let name = |path: &str| {
            let policy = policy_for_handler(path, "1/s").unwrap();
            policy.name().to_owned()
        };
        let long = format!("{}::index", "a".repeat(200));

        assert_eq!(name("shop::login"), "shop::login");
        assert!(name(&long).ends_with("::index"));
        assert_ne!(name(&long), name(&format!("b{long}")));
        assert_ne!(name("shop::é"), name("shop::è"));
    }

    /// The attributes of this program name `buy` and `login`: see the tests of `declared.rs`.
    #[test]
    fn a_registry_is_set_once_and_only_with_all_declared_policies() {
        let policy = |name| Policy::parse(name, "1/s").unwrap();
        let all = Registry::from_policies([policy("buy"), policy("login")]);

        let missing = set_global_registry(Registry::from_policies([policy("buy")])).unwrap_err();
        let message = missing.to_string();
        assert!(message.contains("shop::login at src/a.rs:3"), "{message}");
        assert!(format!("{missing:?}").contains(&message));

        assert_eq!(set_global_registry(all.clone()), Ok(()));
        assert_eq!(
            set_global_registry(all.clone()),
            Err(SetRegistryError::Already)
        );
        assert!(
            all.replace([] as [Policy; 0]).is_err(),
            "the global registry keeps its declared policies"
        );
    }

    #[test]
    fn the_global_limiter_is_set_once() {
        assert_eq!(set_global_limiter(Limiter::in_memory()), Ok(()));
        assert_eq!(set_global_limiter(Limiter::in_memory()), Err(AlreadySet));
    }
}
