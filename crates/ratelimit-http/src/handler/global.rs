//! The process-wide registry of `#[rate_limit]`, and the names of its policies.

use std::{collections::BTreeSet, error, fmt, sync::OnceLock};

use crate::registry::{MissingPolicies, Registry};
use ratelimit_core::{InvalidPolicy, Policy};

/// The registry that [`set_global_registry`] sets.
static REGISTRY: OnceLock<Registry> = OnceLock::new();

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

/// The global registry, or `None` if none was set.
pub fn global_registry() -> Option<Registry> {
    REGISTRY.get().cloned()
}

inventory::collect!(DeclaredHandler);

/// A handler whose `#[rate_limit("...")]` contains its limits and no scope.
///
/// Every such attribute that is linked into the program is collected, whether its handler is routed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeclaredHandler {
    /// The handler's module and name.
    pub path: &'static str,
    /// The source file, as `file!()` gives it.
    pub file: &'static str,
    /// The line of the attribute, from 1.
    pub line: u32,
    /// The column of the attribute, from 1.
    pub column: u32,
}

impl DeclaredHandler {
    /// The name of the handler's policy: its path, with a number if other handlers have the same path.
    ///
    /// Handlers inside functions and `impl` blocks have the path of the module. The first in the source has no number,
    /// the second `-2`, so each has its own budget, and changed lines above them change no name.
    pub fn policy_name(&self) -> String {
        let all = inventory::iter::<DeclaredHandler>();
        // A set, because macros such as `#[debug_handler]` repeat a handler together with its attribute.
        let same: BTreeSet<&DeclaredHandler> =
            all.filter(|other| other.path == self.path).collect();
        match same.iter().filter(|other| **other < self).count() {
            0 => self.path.to_owned(),
            before => format!("{}-{}", self.path, before + 1),
        }
    }
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

/// The error of [`set_global_registry`].
#[derive(Clone, PartialEq, Eq)]
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
            SetRegistryError::Already => {
                f.write_str("a registry is set already: set it once, at the start of main")
            }
            SetRegistryError::Missing(missing) => missing.fmt(f),
        }
    }
}

debug_as_display!(SetRegistryError);

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

    const fn index(line: u32) -> DeclaredHandler {
        DeclaredHandler {
            path: "shop::index",
            file: "src/shop.rs",
            line,
            column: 1,
        }
    }

    inventory::submit! { index(7) }
    inventory::submit! { index(30) }
    // As `#[debug_handler]` repeats it.
    inventory::submit! { index(7) }

    #[test]
    fn handlers_of_one_path_have_policies_of_different_names() {
        assert_eq!(index(7).policy_name(), "shop::index");
        assert_eq!(index(30).policy_name(), "shop::index-2");
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
}
