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
pub struct Policies(BTreeMap<Box<str>, HttpPolicy>);

impl Policies {
    pub(super) fn new(named: impl IntoIterator<Item = NamedPolicy>) -> Policies {
        let defaults = OF_ALGORITHMS.map(|(algorithm, limit)| {
            HttpPolicy::parse(algorithm.as_str(), limit).expect("the limits above are valid")
        });
        let named = named.into_iter().map(|named| named.0);
        let entries = defaults
            .into_iter()
            .chain(named)
            .map(|policy| (policy.name().into(), policy));
        Policies(entries.collect())
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
        self.0.get(canonical(name))
    }

    /// The policies with rules about paths.
    pub(super) fn with_path_rules(&self) -> impl Iterator<Item = &HttpPolicy> {
        self.0.values().filter(|policy| policy.has_path_rules())
    }

    /// All policies, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.0.values().map(HttpPolicy::policy)
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
    }
}
