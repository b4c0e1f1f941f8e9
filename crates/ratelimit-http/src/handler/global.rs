//! The limiter and the policies of a process, for handlers that were given no others.

use std::{
    error, fmt,
    sync::{Once, OnceLock},
};

use crate::{handler::declared::MissingPolicies, registry::Registry};
use ratelimit_core::{InvalidPolicy, Limiter, Policy};

static LIMITER: OnceLock<Limiter> = OnceLock::new();
static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// Makes `limiter` the one that `#[rate_limit(...)]` uses where a request carries no other.
///
/// # Errors
///
/// When there is one already: budgets do not move while a process runs.
pub fn set_global_limiter(limiter: Limiter) -> Result<(), AlreadySet> {
    LIMITER.set(limiter).map_err(|_| AlreadySet)
}

/// Makes `registry` the one in which `#[rate_limit(policy = "...")]` looks up its policy where a
/// request carries no other.
///
/// # Errors
///
/// When an attribute of this program names a policy that is not there, see
/// [`Registry::check_declared`]; and when there is a registry already, whose policies can be changed
/// instead.
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

/// The installed limiter; one in memory, after a warning, where none was installed.
pub fn global_limiter() -> Limiter {
    static IN_MEMORY: OnceLock<Limiter> = OnceLock::new();
    static WARNING: Once = Once::new();
    if let Some(limiter) = LIMITER.get() {
        return limiter.clone();
    }
    WARNING.call_once(|| {
        tracing::warn!(
            "no limiter is installed: handlers count in the memory of this process; \
             call install(limiter) at the start of main to say where"
        );
    });
    IN_MEMORY.get_or_init(Limiter::in_memory).clone()
}

/// The installed registry, if there is one.
pub fn global_registry() -> Option<Registry> {
    REGISTRY.get().cloned()
}

/// The policy of a handler that is known by its path in the program.
///
/// What cannot stand in a policy's name is replaced, and a digest keeps different paths apart.
///
/// # Errors
///
/// When `limits` is not the text of limits.
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
    // The end of a path says more than its beginning, so it was read from there.
    name = name.chars().rev().collect();
    Policy::parse(&format!("{digest:016x}.{name}"), limits)
}

/// FNV-1a, which gives the same digest in every build, unlike the hashers of the standard library.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Something was installed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadySet;

impl fmt::Display for AlreadySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one is installed already: install once, at the start of main")
    }
}

impl error::Error for AlreadySet {}

/// Why a registry was not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetRegistryError {
    /// Another was installed before.
    Already,
    /// Attributes of this program name policies that it does not have.
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
    fn a_path_is_the_name_and_a_long_or_odd_one_keeps_apart() {
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

    /// The attributes of this program name `buy` and `login`: see the tests of `attributes`.
    #[test]
    fn a_registry_is_installed_once_and_only_with_all_that_attributes_name() {
        let policy = |name| Policy::parse(name, "1/s").unwrap();
        let all = Registry::from_policies([policy("buy"), policy("login")]);

        let missing = set_global_registry(Registry::from_policies([policy("buy")])).unwrap_err();
        let told = missing.to_string();
        assert!(told.contains("shop::login at src/a.rs:3"), "{told}");
        assert!(format!("{missing:?}").contains(&told));

        assert_eq!(set_global_registry(all.clone()), Ok(()));
        assert_eq!(
            set_global_registry(all.clone()),
            Err(SetRegistryError::Already)
        );
        assert!(
            all.replace([] as [Policy; 0]).is_err(),
            "what is installed keeps them"
        );
    }

    #[test]
    fn there_is_one_limiter_and_it_stays() {
        assert_eq!(set_global_limiter(Limiter::in_memory()), Ok(()));
        assert_eq!(set_global_limiter(Limiter::in_memory()), Err(AlreadySet));
    }
}
