//! The metrics of requests and policy files, beside those of `ratelimit_core::metrics`.

use metrics::counter;

/// Requests that a rule of their policy blocks, by `policy`; those that pass all the same, because
/// the policy only watches, have `shadow="true"` as well.
pub const BLOCKED: &str = "rate_limiter_blocked_total";
/// Files of policies that were read again, by `result`: `ok`, or `rejected` and the old ones stay.
pub const POLICY_RELOADS: &str = "rate_limiter_policy_reloads_total";

/// Counts a request that a rule blocked, or would have blocked under a policy in shadow mode.
pub(crate) fn count_blocked(policy: &str, is_enforced: bool) {
    let policy = policy.to_owned();
    let blocked = if is_enforced {
        counter!(BLOCKED, "policy" => policy)
    } else {
        counter!(BLOCKED, "policy" => policy, "shadow" => "true")
    };
    blocked.increment(1);
}

/// Counts a policy file that was read again.
#[cfg(any(feature = "toml", feature = "yaml"))]
pub(crate) fn count_reload(result: &'static str) {
    counter!(POLICY_RELOADS, "result" => result).increment(1);
}
