//! The parameters of a check.

use std::{collections::BTreeMap, fmt, num::NonZeroU64, time::Instant};

use axum::http::request::Parts;
use ratelimit_core::{Algorithm, Key, KeySet, Policy, store::Hit};
use ratelimit_http::{client_ip::ClientIpError, key::ExplicitKey, policy_file::nearest};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::Number;

use crate::{
    api_error::ApiError,
    app::App,
    check_keys::{KeySource, check_pattern, named_key, no_own_key},
    client::{self, Peer},
    config::ReloadableConfig,
    envoy_policy::EnvoyPolicy,
    query::{NAMED_KEYS, Query},
    refusal_log::BadCall,
};

/// The parameters of every call about a budget.
const PARAMETERS: [&str; 5] = ["policy", "algorithm", "key", NAMED_KEYS, "permits"];
/// The most policies that an error names.
const MAX_NAMED_POLICIES: usize = 20;
const EMPTY_KEY: &str = "the key is empty: leave it out to count by the client's address";

/// The most names in `keys` of a body. A policy has at most eight limits.
const MAX_NAMED_KEYS: usize = 64;

/// One check: policy, keys and permits.
#[derive(Clone, Debug)]
pub(crate) struct CheckRequest {
    pub(crate) policy: Policy,
    pub(crate) keys: KeySet,
    /// The check's own key as the client sent it, or the address of the client. It names the key again.
    /// Empty if the call is about named keys alone.
    pub(crate) shown: String,
    pub(crate) permits: NonZeroU64,
    pub(crate) wants_receipt: bool,
    /// The time until which Redis may decide, for one of several checks.
    pub(crate) deadline: Option<Instant>,
}

/// A check in a JSON body.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Item {
    algorithm: Option<String>,
    key: Option<String>,
    #[serde(deserialize_with = "unique_keys")]
    keys: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "whole_number")]
    permits: Option<NonZeroU64>,
    policy: Option<String>,
    receipt: Option<bool>,
}

impl CheckRequest {
    /// Reads a check from the query of a request, which may have further parameters.
    pub(crate) fn from_query(
        app: &App,
        rules: &ReloadableConfig,
        parts: &Parts,
        further: &[&str],
    ) -> Result<CheckRequest, ApiError> {
        CheckRequest::new(
            app,
            rules,
            parts,
            Call::of_clients(further),
            KeySource::Query,
        )
    }

    /// Reads a check that an operator asks about. Its policy may be that of an Envoy rule.
    pub(crate) fn explained(
        app: &App,
        rules: &ReloadableConfig,
        parts: &Parts,
    ) -> Result<CheckRequest, ApiError> {
        CheckRequest::new(app, rules, parts, Call::OF_OPERATORS, KeySource::Query)
    }

    /// Reads a check on behalf of a proxy, whose request has the keys of limits `by ip` and `by header:NAME`.
    pub(crate) fn forwarded(
        app: &App,
        rules: &ReloadableConfig,
        parts: &Parts,
    ) -> Result<CheckRequest, ApiError> {
        let read = CheckRequest::new(app, rules, parts, Call::of_clients(&["denied"]), |query| {
            KeySource::Forwarded(query, parts)
        });
        read.map_err(ApiError::unknown_policy_as_404)
    }

    /// Reads which budgets a call is about. It need not name the keys of all limits. Without `key` and with
    /// `keys.NAME` it is about the named keys alone.
    pub(crate) fn partial(
        app: &App,
        rules: &ReloadableConfig,
        parts: &Parts,
    ) -> Result<CheckRequest, ApiError> {
        CheckRequest::new(app, rules, parts, Call::OF_OPERATORS, KeySource::Partial)
    }

    /// The check's own key.
    pub(crate) const fn key(&self) -> &Key {
        self.keys.primary()
    }

    /// The hit that this check is.
    pub(crate) fn hit(&self) -> Hit<'_> {
        let hit = Hit::for_keys(&self.policy, &self.keys).cost(self.permits.get());
        match self.deadline {
            Some(deadline) => hit.deadline(deadline),
            None => hit,
        }
    }

    fn new<'p>(
        app: &App,
        rules: &ReloadableConfig,
        parts: &'p Parts,
        call: Call<'_>,
        source: impl FnOnce(Query<'p>) -> KeySource<'p>,
    ) -> Result<CheckRequest, ApiError> {
        app.check_parameters(parts, &[&PARAMETERS, call.further].concat())?;
        let query = Query::of(parts);
        let algorithm = query.one("algorithm")?;
        let policy = query.one("policy")?;
        let permits = query.one("permits")?;
        let key = ExplicitKey::from_query(query.as_bytes(), "key").map_err(bad_key)?;
        if key.is_none() && query.one("key")?.is_some() {
            return Err(ApiError::bad_request(EMPTY_KEY));
        }
        let of_envoy = policy.as_deref().filter(|_| call.includes_envoy);
        let of_envoy = of_envoy.and_then(|name| EnvoyPolicy::find(app, name));
        let policy = match (&of_envoy, policy.as_deref()) {
            (Some(of_envoy), Some(name)) if rules.policies.named(name).is_none() => {
                &of_envoy.policy
            }
            (_, name) => policy_of(app, rules, parts, algorithm.as_deref(), name)?,
        };
        let source = source(query);
        source.check_names(policy)?;
        let (key, shown) = match key {
            None if source.is_about_named_keys(policy)? => (no_own_key(), String::new()),
            key => key_of(app, rules, parts, of_envoy.as_ref(), key)?,
        };
        let policy = policy.for_key(&key).clone();
        let permits = permits.map(|text| permits_of(&text)).transpose()?;
        Ok(CheckRequest {
            permits: permits.unwrap_or_else(|| policy.cost()),
            keys: source.keys(app, parts, rules, &policy, key)?,
            policy,
            shown,
            wants_receipt: false,
            deadline: None,
        })
    }

    /// Reads a check from a JSON body.
    pub(crate) fn from_item(
        app: &App,
        rules: &ReloadableConfig,
        parts: &Parts,
        item: Item,
    ) -> Result<CheckRequest, ApiError> {
        if item.key.as_deref() == Some("") {
            return Err(ApiError::bad_request(EMPTY_KEY));
        }
        let key = item.key.map(ExplicitKey::from_value).transpose();
        let (key, shown) = key_of(app, rules, parts, None, key.map_err(bad_key)?.flatten())?;
        let (algorithm, policy) = (item.algorithm.as_deref(), item.policy.as_deref());
        let policy = policy_of(app, rules, parts, algorithm, policy)?;
        let policy = policy.for_key(&key).clone();
        let keys = item.keys.unwrap_or_default();
        Ok(CheckRequest {
            permits: item.permits.unwrap_or_else(|| policy.cost()),
            keys: KeySource::Body(&keys).keys(app, parts, rules, &policy, key)?,
            policy,
            shown,
            wants_receipt: item.receipt.unwrap_or(false),
            deadline: None,
        })
    }
}

/// The query parameters that a call accepts.
#[derive(Clone, Copy)]
struct Call<'a> {
    /// The parameters besides [`PARAMETERS`].
    further: &'a [&'a str],
    /// Whether the policy may be that of an Envoy rule.
    includes_envoy: bool,
}

impl<'a> Call<'a> {
    const OF_OPERATORS: Call<'static> = Call {
        further: &[],
        includes_envoy: true,
    };

    const fn of_clients(further: &'a [&'a str]) -> Call<'a> {
        Call {
            further,
            includes_envoy: false,
        }
    }
}

/// The key that the request names, or the key of the client's address.
fn key_of(
    app: &App,
    rules: &ReloadableConfig,
    parts: &Parts,
    of_envoy: Option<&EnvoyPolicy>,
    named: Option<ExplicitKey<'_>>,
) -> Result<(Key, String), ApiError> {
    let Some(named) = named else {
        let peer = Peer::of(&parts.extensions);
        return client::own_key(app, rules, peer, &parts.headers);
    };
    if let Some(policy) = of_envoy {
        return Ok((policy.key(named.as_str())?, named.into_string()));
    }
    check_pattern(rules, "the key", named.as_str())
        .map_err(|why| app.bad_parameter(parts, &why))?;
    Ok((named_key(named.as_str())?, named.into_string()))
}

fn bad_key(why: ClientIpError) -> ApiError {
    ApiError::bad_request(why.to_string())
}

/// The policy that a call names. Without a name it is the default of an algorithm, unless the server requires a name: the
/// default is another limit than those that were configured.
fn policy_of<'r>(
    app: &App,
    rules: &'r ReloadableConfig,
    parts: &Parts,
    algorithm: Option<&str>,
    policy: Option<&str>,
) -> Result<&'r Policy, ApiError> {
    let (reason, why) = match (algorithm, policy) {
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_request(
                "algorithm and policy exclude each other",
            ));
        }
        (None, Some(name)) => match rules.policies.named(name) {
            Some(policy) => return Ok(policy),
            None => (BadCall::UnknownPolicy, unknown_policy(rules, name)),
        },
        (algorithm, None) => {
            let by_name = algorithm.map(Algorithm::from_name);
            let by_default = (!rules.requires_policy).then_some(Algorithm::TokenBucket);
            let algorithm = by_name.unwrap_or(by_default);
            match algorithm.and_then(|algorithm| rules.policies.of_algorithm(algorithm)) {
                Some(policy) => return Ok(policy),
                None if by_name.is_none() => (BadCall::NoPolicy, no_policy(rules)),
                None => (BadCall::UnknownPolicy, unknown_algorithm()),
            }
        }
    };
    Err(app.refuse_call(reason, parts, why))
}

/// The error text for a policy that does not exist, with the nearest one.
pub(crate) fn unknown_policy(rules: &ReloadableConfig, name: &str) -> String {
    let shown: String = name.chars().take(Policy::MAX_NAME).collect();
    match nearest(name, rules.policies.iter().map(Policy::name)) {
        Some(meant) => format!("unknown policy {shown:?}: did you mean {meant}?"),
        None => format!("unknown policy {shown:?}"),
    }
}

fn unknown_algorithm() -> String {
    let known = Algorithm::RATES.map(Algorithm::wire_name).join(", ");
    format!("unknown algorithm: expected one of {known}")
}

fn no_policy(rules: &ReloadableConfig) -> String {
    let mut names: Vec<&str> = rules.policies.configured().collect();
    let more = names.len() > MAX_NAMED_POLICIES;
    names.truncate(MAX_NAMED_POLICIES);
    let names = names.join(", ");
    format!(
        "name a policy of this server: policy={names}{}, or algorithm=NAME for a built-in one",
        if more { ", ..." } else { "" }
    )
}

/// Reads an object whose names are unique, or null. Serde would keep the last of two values.
fn unique_keys<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    Ok(Option::<UniqueKeys>::deserialize(from)?.map(|keys| keys.0))
}

struct UniqueKeys(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UniqueKeys, D::Error> {
        from.deserialize_map(UniqueKeysVisitor)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = UniqueKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of names and keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<UniqueKeys, A::Error> {
        let mut keys = BTreeMap::new();
        while let Some((name, key)) = members.next_entry::<String, String>()? {
            if keys.len() == MAX_NAMED_KEYS {
                return Err(A::Error::custom(format!(
                    "keys has more than {MAX_NAMED_KEYS} names"
                )));
            }
            if keys.contains_key(&name) {
                return Err(A::Error::custom(format!("keys names {name} twice")));
            }
            keys.insert(name, key);
        }
        Ok(UniqueKeys(keys))
    }
}

const PERMITS_RANGE: &str = "permits must be a whole number from 1 to 18446744073709551615";

/// Reads a whole number above 0. In JSON, 2, 2.0 and 2e0 are the same number.
pub(crate) fn whole_number<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<NonZeroU64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(from)? else {
        return Ok(None);
    };
    let permits = value_of(&number).and_then(NonZeroU64::new);
    permits
        .map(Some)
        .ok_or_else(|| D::Error::custom(PERMITS_RANGE))
}

/// Reads a required whole number from 0.
pub(crate) fn whole_number_or_zero<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let expected = || D::Error::custom("expected a whole number from 0 to 18446744073709551615");
    value_of(&Number::deserialize(from)?).ok_or_else(expected)
}

fn value_of(number: &Number) -> Option<u64> {
    number.as_u64().or_else(|| whole(number.as_f64()?))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole, and within bounds"
)]
fn whole(number: f64) -> Option<u64> {
    const END: f64 = 18_446_744_073_709_551_616.0;
    let fits = number.fract() == 0.0 && (0.0..END).contains(&number);
    fits.then_some(number as u64)
}

fn permits_of(text: &str) -> Result<NonZeroU64, ApiError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let permits = digits.then(|| text.parse().ok()).flatten();
    permits.ok_or_else(|| ApiError::bad_request(PERMITS_RANGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_in_json_are_read_by_their_value() {
        let permits = |text: &str| {
            let item = serde_json::from_str::<Item>(&format!("{{\"permits\":{text}}}"));
            item.map(|item| item.permits.map(NonZeroU64::get)).ok()
        };

        for (text, value) in [
            ("2", 2),
            ("2.0", 2),
            ("2e2", 200),
            ("18446744073709551615", u64::MAX),
            ("1e19", 10_000_000_000_000_000_000),
        ] {
            assert_eq!(permits(text), Some(Some(value)), "{text}");
        }
        assert_eq!(permits("null"), Some(None));
        for text in [
            "0",
            "0.0",
            "-1",
            "1.5",
            "1e20",
            "18446744073709551616",
            "\"1\"",
            "true",
        ] {
            assert_eq!(permits(text), None, "{text}");
        }
    }

    #[test]
    fn permits_are_whole_and_above_zero() {
        assert_eq!(permits_of("18446744073709551615").unwrap(), NonZeroU64::MAX);
        for text in [
            "",
            "0",
            "-1",
            "+1",
            "1.0",
            "NaN",
            "1e308",
            "18446744073709551616",
            " 1",
        ] {
            assert!(permits_of(text).is_err(), "{text}");
        }
    }
}
