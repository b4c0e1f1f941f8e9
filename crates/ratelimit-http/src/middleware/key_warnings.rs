//! Warnings about rules and tenants whose key no request has.

use crate::{
    framework::Framework, key::KeyKinds, log_once, middleware::config::Config, policy::HttpPolicy,
};

impl<F: Framework> Config<F> {
    /// Logs a warning about each rule and tenant of the policy whose key no request can have, if the extractor declares its
    /// kinds.
    pub(crate) fn log_unmatched_keys(&self) {
        log_unmatched_keys(&self.policy, &self.key_kinds);
    }
}

/// Logs a warning about each rule and tenant of `policy` whose key is not of these kinds, at most ten. A warning appears
/// once per process.
///
/// ```
/// use ratelimit_http::{key::KeyKinds, middleware::log_unmatched_keys, policy::HttpPolicy};
///
/// let api = HttpPolicy::parse("api", "10/min")?.with_block_rule("key:mallory".parse()?);
/// log_unmatched_keys(&api, &KeyKinds::named("header", "x-user")); // logs a warning
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn log_unmatched_keys(policy: &HttpPolicy, kinds: &KeyKinds) {
    for warning in policy.unmatched_keys(kinds).into_iter().take(10) {
        if log_once::is_first(policy.name(), &warning) {
            tracing::warn!(policy = policy.name(), "{warning}");
        }
    }
}
