//! Warnings about rules and tenants whose key no request has.

use std::fmt;

use crate::{
    framework::Framework,
    key::KeyKinds,
    log_once,
    middleware::{config::Config, key_observer::MAX_OBSERVED},
    policy::HttpPolicy,
};
use ratelimit_core::Key;

impl<F: Framework> Config<F> {
    /// Learns the kind of a request's key, and logs a warning about rules and tenants of other kinds at the end.
    ///
    /// It does nothing if the extractor declares its kinds, or the policy names no keys.
    #[inline]
    pub(crate) fn observe_key(&self, key: &Key) {
        if self.flags.names_keys && !self.key_kinds.is_known() && self.key_observer.observe(key) {
            self.log_unmatched_keys();
        }
    }

    /// Logs a warning about each rule and tenant of the policy whose key no request can have, as far as it is
    /// known.
    pub(crate) fn log_unmatched_keys(&self) {
        if self.key_kinds.is_known() {
            return log_unmatched_keys(&self.policy, &self.key_kinds);
        }
        let basis = format_args!("by the keys of {MAX_OBSERVED} requests, ");
        log_warnings(&self.policy, &self.key_observer.kinds(), basis);
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
    log_warnings(policy, kinds, format_args!(""));
}

fn log_warnings(policy: &HttpPolicy, kinds: &KeyKinds, basis: fmt::Arguments<'_>) {
    for warning in policy.unmatched_keys(kinds).into_iter().take(10) {
        if log_once::is_first(policy.name(), &warning) {
            tracing::warn!(policy = policy.name(), "{basis}{warning}");
        }
    }
}
