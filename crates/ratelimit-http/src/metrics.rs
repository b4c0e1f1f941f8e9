//! Metrics of requests and policy files. `ratelimit_core::metrics` has those of the engine.

#[cfg(any(feature = "toml", feature = "yaml"))]
use metrics::gauge;
use metrics::{counter, describe_counter, describe_gauge};

use crate::key::KeyError;

/// Counter of requests that a rule blocks, by `policy`.
///
/// Requests that a policy in shadow mode would have blocked have the label `shadow="true"` as well.
pub const BLOCKED: &str = "rate_limiter_blocked_total";
/// Counter of requests without a usable key, by `policy` and `reason`, such as `missing_key`.
///
/// Those that a policy in shadow mode let pass uncounted have the label `shadow="true"` as well.
pub const WITHOUT_KEY: &str = "rate_limiter_without_key_total";
/// Counter of policy file reloads, by `result`: `ok`, or `rejected` if the previous policies stay.
pub const POLICY_RELOADS: &str = "rate_limiter_policy_reloads_total";
/// Gauge of the files that are in force, by `files`: 1, or 0 while their newest version is rejected or cannot be read, and the
/// previous one applies.
///
/// The policies of a [`Registry`](crate::registry::Registry) have `files="policies"`; the server has more.
pub const CONFIG_OK: &str = "rate_limiter_config_ok";

/// Tells the installed recorder what these metrics mean, for `# HELP` lines.
///
/// Call it once, after the recorder is installed, beside `ratelimit_core::metrics::describe`.
pub fn describe() {
    describe_counter!(BLOCKED, "Requests that a rule blocks, by policy.");
    describe_counter!(
        WITHOUT_KEY,
        "Requests without a usable key, by policy and reason."
    );
    describe_counter!(POLICY_RELOADS, "Reloads of the policy file, by result.");
    describe_gauge!(
        CONFIG_OK,
        "Whether the newest version of the files is in force, by files."
    );
}

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

/// Counts a request without a usable key, which was rejected or, under a policy in shadow mode, let pass.
pub(crate) fn count_without_key(policy: &str, error: KeyError, is_rejected: bool) {
    let (policy, reason) = (policy.to_owned(), error.as_str());
    let without = if is_rejected {
        counter!(WITHOUT_KEY, "policy" => policy, "reason" => reason)
    } else {
        counter!(WITHOUT_KEY, "policy" => policy, "reason" => reason, "shadow" => "true")
    };
    without.increment(1);
}

/// Counts a policy file that was read again, and whether it is in force.
#[cfg(any(feature = "toml", feature = "yaml"))]
pub(crate) fn count_reload(is_accepted: bool) {
    let result = if is_accepted { "ok" } else { "rejected" };
    counter!(POLICY_RELOADS, "result" => result).increment(1);
    set_config_ok(is_accepted);
}

/// Sets whether the newest policy file is in force.
#[cfg(any(feature = "toml", feature = "yaml"))]
pub(crate) fn set_config_ok(is_ok: bool) {
    gauge!(CONFIG_OK, "files" => "policies").set(f64::from(u8::from(is_ok)));
}

/// Shows the counters of reloads before the first one, so that an increase is seen.
#[cfg(any(feature = "toml", feature = "yaml"))]
pub(crate) fn register_reloads() {
    for result in ["ok", "rejected"] {
        counter!(POLICY_RELOADS, "result" => result).increment(0);
    }
}
