//! The parameters of a check.

use std::{collections::BTreeMap, fmt, num::NonZeroU64, time::Instant};

use axum::http::request::Parts;
use ratelimit_core::{Algorithm, Key, KeySet, Policy, store::Hit};
use ratelimit_http::{client_ip::ClientIpError, key::ExplicitKey};
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
    config::Rules,
    query::Query,
};

const EMPTY_KEY: &str = "the key is empty: leave it out to count by the client's address";

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
    /// Reads a check from the query of a request.
    pub(crate) fn from_query(
        app: &App,
        rules: &Rules,
        parts: &Parts,
    ) -> Result<CheckRequest, ApiError> {
        CheckRequest::new(app, rules, parts, KeySource::Query)
    }

    /// Reads a check on behalf of a proxy, whose request has the keys of limits `by ip` and `by header:NAME`.
    pub(crate) fn forwarded(
        app: &App,
        rules: &Rules,
        parts: &Parts,
    ) -> Result<CheckRequest, ApiError> {
        CheckRequest::new(app, rules, parts, |query| {
            KeySource::Forwarded(query, parts)
        })
    }

    /// Reads which budgets a call is about. It need not name the keys of all limits. Without `key` and with
    /// `keys.NAME` it is about the named keys alone.
    pub(crate) fn partial(
        app: &App,
        rules: &Rules,
        parts: &Parts,
    ) -> Result<CheckRequest, ApiError> {
        CheckRequest::new(app, rules, parts, KeySource::Partial)
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
        rules: &Rules,
        parts: &'p Parts,
        source: impl FnOnce(Query<'p>) -> KeySource<'p>,
    ) -> Result<CheckRequest, ApiError> {
        let query = Query(parts.uri.query().unwrap_or_default());
        let algorithm = query.one("algorithm")?;
        let policy = query.one("policy")?;
        let permits = query.one("permits")?;
        let key = ExplicitKey::from_query(query.as_bytes(), "key").map_err(bad_key)?;
        if key.is_none() && query.one("key")?.is_some() {
            return Err(ApiError::bad_request(EMPTY_KEY));
        }
        let policy = policy_of(rules, algorithm.as_deref(), policy.as_deref())?;
        let source = source(query);
        source.check_names(policy)?;
        let (key, shown) = match key {
            None if source.is_about_named_keys(policy)? => (no_own_key(), String::new()),
            key => key_of(app, rules, parts, key)?,
        };
        let policy = policy.for_key(&key).clone();
        let permits = permits.map(|text| permits_of(&text)).transpose()?;
        Ok(CheckRequest {
            permits: permits.unwrap_or_else(|| policy.cost()),
            keys: source.keys(rules, &policy, key)?,
            policy,
            shown,
            wants_receipt: false,
            deadline: None,
        })
    }

    /// Reads a check from a JSON body.
    pub(crate) fn from_item(
        app: &App,
        rules: &Rules,
        parts: &Parts,
        item: Item,
    ) -> Result<CheckRequest, ApiError> {
        if item.key.as_deref() == Some("") {
            return Err(ApiError::bad_request(EMPTY_KEY));
        }
        let key = item.key.map(ExplicitKey::from_value).transpose();
        let (key, shown) = key_of(app, rules, parts, key.map_err(bad_key)?.flatten())?;
        let policy = policy_of(rules, item.algorithm.as_deref(), item.policy.as_deref())?;
        let policy = policy.for_key(&key).clone();
        let keys = item.keys.unwrap_or_default();
        Ok(CheckRequest {
            permits: item.permits.unwrap_or_else(|| policy.cost()),
            keys: KeySource::Body(&keys).keys(rules, &policy, key)?,
            policy,
            shown,
            wants_receipt: item.receipt.unwrap_or(false),
            deadline: None,
        })
    }
}

/// The key that the request names, or the key of the client's address.
fn key_of(
    app: &App,
    rules: &Rules,
    parts: &Parts,
    named: Option<ExplicitKey<'_>>,
) -> Result<(Key, String), ApiError> {
    let Some(named) = named else {
        let peer = Peer::of(&parts.extensions);
        return client::own_key(app, rules, peer, &parts.headers);
    };
    check_pattern(rules, "the key", named.as_str())?;
    Ok((named_key(named.as_str())?, named.into_string()))
}

fn bad_key(why: ClientIpError) -> ApiError {
    ApiError::bad_request(why.to_string())
}

fn policy_of<'r>(
    rules: &'r Rules,
    algorithm: Option<&str>,
    policy: Option<&str>,
) -> Result<&'r Policy, ApiError> {
    let known = match (algorithm, policy) {
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_request(
                "algorithm and policy exclude each other",
            ));
        }
        (None, Some(name)) => rules.policies.named(name),
        (Some(name), None) => {
            let algorithm = Algorithm::from_name(name);
            algorithm.and_then(|algorithm| rules.policies.of_algorithm(algorithm))
        }
        (None, None) => rules.policies.of_algorithm(Algorithm::TokenBucket),
    };
    let unknown = || match policy {
        Some(_) => ApiError::bad_request("unknown policy"),
        None => ApiError::bad_request(format!(
            "unknown algorithm: expected one of {}",
            Algorithm::RATES.map(Algorithm::wire_name).join(", ")
        )),
    };
    known.ok_or_else(unknown)
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
