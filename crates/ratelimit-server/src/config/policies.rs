//! The policies of the server.

use std::collections::BTreeMap;

use ratelimit_core::{Algorithm, Policy};
use ratelimit_http::policy::HttpPolicy;

use super::values::{NamedPolicy, canonical};

const OF_ALGORITHMS: [(Algorithm, &str); 5] = [
    (Algorithm::TokenBucket, "token_bucket 10/s burst 100"),
    (Algorithm::LeakyBucket, "leaky_bucket 10/s queue 100"),
    (Algorithm::FixedWindow, "fixed_window 100/min"),
    (Algorithm::SlidingWindowLog, "sliding_window_log 100/min"),
    (
        Algorithm::SlidingWindowCounter,
        "sliding_window_counter 100/min",
    ),
];

/// All policies by name: one default policy per algorithm, and the configured policies.
///
/// A configured policy with the name of an algorithm replaces the default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "console"),
    allow(dead_code, reason = "the console tells which policies are defaults")
)]
pub struct Policies {
    by_name: BTreeMap<Box<str>, HttpPolicy>,
    /// The names of the default policies that no configured policy replaces.
    built_in: Vec<&'static str>,
}

impl Policies {
    pub(super) fn new(named: impl IntoIterator<Item = NamedPolicy>) -> Policies {
        let defaults = OF_ALGORITHMS.map(|(algorithm, limit)| {
            HttpPolicy::parse(algorithm.as_str(), limit).expect("the limits above are valid")
        });
        let named = named.into_iter().map(|named| named.0);
        let named = named.map(|policy| (policy.name().into(), policy));
        let mut by_name: BTreeMap<Box<str>, HttpPolicy> = named.collect();
        let mut built_in = Vec::new();
        for (policy, (algorithm, _)) in defaults.into_iter().zip(OF_ALGORITHMS) {
            if !by_name.contains_key(policy.name()) {
                built_in.push(algorithm.as_str());
                by_name.insert(policy.name().into(), policy);
            }
        }
        Policies { by_name, built_in }
    }

    /// The policy of a check that names only an algorithm.
    pub fn of_algorithm(&self, algorithm: Algorithm) -> Option<&Policy> {
        self.http(algorithm.as_str()).map(HttpPolicy::policy)
    }

    /// The policy with that name or alias.
    pub fn named(&self, name: &str) -> Option<&Policy> {
        self.http(name).map(HttpPolicy::policy)
    }

    /// The policy with its rules for HTTP requests.
    pub fn http(&self, name: &str) -> Option<&HttpPolicy> {
        self.by_name.get(canonical(name))
    }

    /// The policies with rules about paths.
    pub(super) fn with_path_rules(&self) -> impl Iterator<Item = &HttpPolicy> {
        self.by_name
            .values()
            .filter(|policy| policy.has_path_rules())
    }

    /// The names of the configured policies.
    pub(crate) fn configured(&self) -> impl Iterator<Item = &str> {
        let names = self.by_name.keys().map(|name| &**name);
        names.filter(|name| !self.built_in.contains(name))
    }

    /// Whether the policy is a default that no configured policy replaces.
    #[cfg_attr(not(feature = "console"), allow(dead_code, reason = "for the console"))]
    pub(crate) fn is_built_in(&self, name: &str) -> bool {
        self.built_in.contains(&name)
    }

    /// All policies with their rules for HTTP requests, ordered by name.
    #[cfg_attr(not(feature = "console"), allow(dead_code, reason = "for the console"))]
    pub(crate) fn iter_http(&self) -> impl Iterator<Item = &HttpPolicy> {
        self.by_name.values()
    }

    /// All policies, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.by_name.values().map(HttpPolicy::policy)
    }
}

impl Default for Policies {
    fn default() -> Policies {
        Policies::new([])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_a_policy_of_its_own() {
        let policies = Policies::default();

        for algorithm in Algorithm::RATES {
            let policy = policies.of_algorithm(algorithm).unwrap();
            assert_eq!(policy.limits()[0].algorithm(), algorithm);
            assert_eq!(policy.limits()[0].capacity(), 100);
            assert_eq!(policies.named(algorithm.wire_name()), Some(policy));
        }
    }

    #[test]
    fn a_policy_named_like_an_algorithm_replaces_its_own() {
        let strict: NamedPolicy = "TOKEN_BUCKET=token_bucket 1/h".parse().unwrap();

        let policies = Policies::new([strict]);

        let policy = policies.of_algorithm(Algorithm::TokenBucket).unwrap();
        assert_eq!(policy.to_string(), "token_bucket 1/h");
        assert_eq!(policies.iter().count(), Algorithm::RATES.len());
        assert!(!policies.is_built_in("token_bucket"));
        assert!(policies.is_built_in("fixed_window"));
    }
}
