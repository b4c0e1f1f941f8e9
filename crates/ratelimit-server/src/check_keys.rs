//! The keys of a check: its own, and those of limits that count by another key, as in `5/min by ip`.

use std::{collections::BTreeMap, net::IpAddr};

use axum::http::request::Parts;
use ratelimit_core::{Key, KeySet, Policy};
use ratelimit_http::{
    client_ip::{ClientIpResolver, HeaderLines, parse_address},
    key::{ExplicitKey, HeaderKey, KeyError, is_credential},
};

use crate::{
    api_error::ApiError,
    app::App,
    client::{Lines, Peer},
    config::ReloadableConfig,
    query::Query,
    refusal_log::BadCall,
};

/// One budget for all requests. Every call has this key.
const GLOBAL: &str = "global";
const IP: &str = "ip";
const HEADER: &str = "header:";
/// The beginning of a key that is a digest.
const DIGEST: &str = "sha256~";
/// The tag of the own keys of checks.
const OWN: &str = "key:";

/// Where a call finds the keys of limits `by NAME`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeySource<'a> {
    /// The parameters `keys.NAME` of a query.
    Query(Query<'a>),
    /// The member `keys` of a body.
    Body(&'a BTreeMap<String, String>),
    /// The parameters `keys.NAME`, or else the request that a proxy asks about: its client and its headers.
    Forwarded(Query<'a>, &'a Parts),
    /// As [`Query`](KeySource::Query), for a call about those keys that it names.
    Partial(Query<'a>),
}

impl KeySource<'_> {
    /// The keys that the limits of `policy` count by.
    ///
    /// A missing key is an error: the engine would count by the check's own key, which is another limit than the
    /// one that was written.
    pub(crate) fn keys(
        self,
        app: &App,
        parts: &Parts,
        rules: &ReloadableConfig,
        policy: &Policy,
        own: Key,
    ) -> Result<KeySet, ApiError> {
        let mut keys = KeySet::new(own);
        for name in self.names(policy) {
            if name == GLOBAL && !matches!(self, KeySource::Partial(_)) {
                keys = keys.with(name, tagged(name, "all")?);
            } else if let Some(text) = self.given(name)? {
                let key = given_key(rules, name, &text);
                keys = keys.with(name, key.map_err(|why| app.bad_parameter(parts, &why))?);
            } else if let KeySource::Forwarded(_, parts) = self
                && (name == IP || name.starts_with(HEADER))
            {
                keys = with_forwarded(keys, rules, name, parts)?;
            } else if !matches!(self, KeySource::Partial(_)) {
                let why = self.missing(policy, name);
                return Err(app.refuse_call(BadCall::MissingKey, parts, why));
            }
        }
        Ok(keys)
    }

    /// Refuses a `keys.NAME` that no limit of `policy` counts by: a misspelt name would reset other keys than meant. A
    /// check with such a name lacks another one.
    pub(crate) fn check_names(self, policy: &Policy) -> Result<(), ApiError> {
        let KeySource::Partial(query) = self else {
            return Ok(());
        };
        let names = self.names(policy);
        let mut given = query.names_after("keys.");
        match given.find(|name| !names.contains(&&**name)) {
            Some(unknown) => Err(ApiError::bad_request(format!(
                "no limit of policy {} counts by {unknown}",
                policy.name()
            ))),
            None => Ok(()),
        }
    }

    /// Whether the call is about the named keys of `policy` alone, provided that it has no `key`.
    pub(crate) fn is_about_named_keys(self, policy: &Policy) -> Result<bool, ApiError> {
        if !matches!(self, KeySource::Partial(_)) {
            return Ok(false);
        }
        for name in self.names(policy) {
            if self.given(name)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The names that limits of `policy` count by. A partial call can name those of its tiers as well.
    fn names(self, policy: &Policy) -> Vec<&str> {
        let tiers = policy.tiers().flat_map(|(_, tier)| tier.key_names());
        let is_partial = matches!(self, KeySource::Partial(_));
        let tiers = tiers.filter(|_| is_partial);
        policy.key_names().chain(tiers).collect()
    }

    /// The text that the caller gives for a name.
    fn given(self, name: &str) -> Result<Option<String>, ApiError> {
        match self {
            KeySource::Body(given) => Ok(given.get(name).cloned()),
            KeySource::Query(query)
            | KeySource::Partial(query)
            | KeySource::Forwarded(query, _) => {
                let text = query.one(&format!("keys.{name}"))?;
                Ok(text.map(std::borrow::Cow::into_owned))
            }
        }
    }

    fn missing(self, policy: &Policy, name: &str) -> String {
        let policy = policy.name();
        let place = match self {
            KeySource::Body(_) => format!("\"keys\":{{\"{name}\":\"...\"}}"),
            _ => format!("keys.{name}=..."),
        };
        format!("a limit of policy {policy} counts by {name}: send {place}")
    }
}

/// Adds the key of a forwarded request. A request without the header counts by its own key, as in the layers.
fn with_forwarded(
    keys: KeySet,
    rules: &ReloadableConfig,
    name: &str,
    parts: &Parts,
) -> Result<KeySet, ApiError> {
    let lines = Lines(&parts.headers);
    let key = if let Some(header) = name.strip_prefix(HEADER) {
        let header = HeaderKey::new(header.to_ascii_lowercase());
        header.extract_key(lines.lines(header.name()))
    } else {
        let peer = Peer::of(&parts.extensions).map(|peer| peer.ip());
        let client = rules.client.resolve(peer, &lines);
        client
            .map(|client| Key::network(client.addr(), client.prefix()))
            .map_err(KeyError::from)
    };
    match key {
        Ok(key) => Ok(keys.with(name, key)),
        Err(KeyError::Missing) => Ok(keys),
        Err(why) => Err(ApiError::bad_request(format!("{name}: {why}"))),
    }
}

/// The own key of a call about named keys alone. No check has it: its tag is neither `key` nor `ip`.
pub(crate) fn no_own_key() -> Key {
    Key::tagged("no-own-key", "none").expect("the tag is valid")
}

/// The key of a text that a caller gives for a name. It equals the key that a layer finds.
fn given_key(rules: &ReloadableConfig, name: &str, text: &str) -> Result<Key, ApiError> {
    // The same bounds as for `key`.
    let bounded = ExplicitKey::from_value(text);
    bounded.map_err(|why| ApiError::bad_request(format!("keys.{name}: {why}")))?;
    if name == IP {
        let address = parse_address(text.as_bytes());
        let address = address.ok_or_else(|| {
            ApiError::bad_request("keys.ip must be an address such as 203.0.113.7")
        })?;
        return Ok(address_key(&rules.client, address));
    }
    check_pattern(rules, &format!("keys.{name}"), text)?;
    // Lists of offenders show a secret by its digest, which names the key again.
    if has_hashed_keys(name)
        && text.starts_with(DIGEST)
        && let Ok(key) = Key::from_printed(text)
    {
        return Ok(key);
    }
    match name.strip_prefix(HEADER) {
        Some(header) => {
            let header = HeaderKey::new(header.to_ascii_lowercase());
            let key = header.extract_key([text.as_bytes()].into_iter());
            key.map_err(|why| ApiError::bad_request(format!("keys.{name}: {why}")))
        }
        None => tagged(name, text),
    }
}

/// Checks a key that a caller names against `--key-pattern`. Addresses are not subject to it.
pub(crate) fn check_pattern(
    rules: &ReloadableConfig,
    noun: &str,
    text: &str,
) -> Result<(), ApiError> {
    match &rules.key_pattern {
        Some(pattern) if !pattern.accepts(text) => Err(ApiError::bad_request(format!(
            "{noun} does not match the pattern of this server"
        ))),
        _ => Ok(()),
    }
}

/// The key of an address, cut to the prefix that tells clients apart.
fn address_key(resolver: &ClientIpResolver, address: IpAddr) -> Key {
    let no_headers: &[(&str, &str)] = &[];
    match resolver.resolve(Some(address), no_headers) {
        Ok(client) => Key::network(client.addr(), client.prefix()),
        Err(_) => Key::ip(address),
    }
}

/// Whether the keys of limits `by NAME` are digests, because the name is that of a credential.
fn has_hashed_keys(name: &str) -> bool {
    is_credential(name.strip_prefix(HEADER).unwrap_or(name))
}

fn tagged(name: &str, text: &str) -> Result<Key, ApiError> {
    let make = |tag: &str, value: &[u8]| {
        if is_credential(name) {
            Key::hashed(tag, value)
        } else {
            Key::tagged(tag, value)
        }
    };
    // A name may have letters that a tag cannot have.
    let key =
        make(name, text.as_bytes()).or_else(|_| make("named", format!("{name}:{text}").as_bytes()));
    match key {
        Ok(key) if !text.is_empty() => Ok(key),
        _ => Err(ApiError::bad_request(format!("keys.{name} is empty"))),
    }
}

/// The key that a caller names, or that a response showed to it.
///
/// `ip:` begins an address or a network, `sha256~` the digest of a long key. Any other text is a key of its own.
pub(crate) fn named_key(text: &str) -> Result<Key, ApiError> {
    if let Some(key) = text.strip_prefix("ip:").and_then(network_key) {
        return Ok(key);
    }
    if let Some(digest) = text.strip_prefix(DIGEST) {
        if let Ok(key) = Key::from_printed(text) {
            return Ok(key);
        }
        if digest.len() == 16 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ApiError::bad_request(
                "this is the fingerprint of a key, and the key cannot be found by it; \
                 --offender-keys shown lists the keys themselves",
            ));
        }
    }
    Key::new(text).map_err(|why| ApiError::bad_request(why.to_string()))
}

fn network_key(text: &str) -> Option<Key> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, prefix.parse().ok()?),
        None => (text, 128),
    };
    let address: IpAddr = address.parse().ok()?;
    let widest = if address.is_ipv4() { 32 } else { 128 };
    let is_valid = prefix <= widest || !text.contains('/');
    is_valid.then(|| Key::network(address, prefix))
}

/// The text that names a key in the calls of this server: the inverse of [`named_key`].
pub(crate) fn key_text(key: &Key) -> String {
    let printed = key.as_str();
    let Some(escaped) = printed.strip_prefix(OWN) else {
        return printed.to_owned();
    };
    let text = percent_encoding::percent_decode_str(escaped).decode_utf8();
    match text {
        Ok(text) if named_key(&text).is_ok_and(|named| named == *key) => text.into_owned(),
        _ => printed.to_owned(),
    }
}

/// The name of the limits `by NAME` of `policy` that count by `key`, or `None` for the own key of a check.
///
/// - A check whose own key is an address and a limit `by ip` have equal keys: then it is `ip`.
/// - A digest belongs to the first name of a credential, if there is one. It could also be an own key of more than 200
///   bytes.
pub(crate) fn name_of_key<'a>(policy: &'a Policy, key: &Key) -> Option<&'a str> {
    if key.as_str().starts_with(DIGEST) {
        return policy.key_names().find(|name| has_hashed_keys(name));
    }
    let begins_key = |name: &&str| {
        let begin = key_prefix(name);
        begin.is_some_and(|begin| begin != OWN && key.as_str().starts_with(&begin))
    };
    // Of `A` and `A:b` the longer name is meant.
    policy
        .key_names()
        .filter(begins_key)
        .max_by_key(|name| name.len())
}

/// The text that begins all keys of limits `by NAME`.
fn key_prefix(name: &str) -> Option<String> {
    if let Some(header) = name.strip_prefix(HEADER) {
        return Some(format!("{HEADER}{}:", header.to_ascii_lowercase()));
    }
    let key = tagged(name, "x").ok().filter(|_| !has_hashed_keys(name))?;
    key.as_str().strip_suffix('x').map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_key_names_the_same_key_again() {
        let address = "2001:db8:1:2::9".parse().unwrap();
        for key in [
            Key::new("user:123").unwrap(),
            Key::new("a b/ü%41").unwrap(),
            Key::new("key:alice").unwrap(),
            Key::new("ip:nobody").unwrap(),
            Key::new("x".repeat(256)).unwrap(),
            Key::ip("203.0.113.7".parse().unwrap()),
            Key::network(address, 64),
            Key::network(address, 128),
            Key::network("203.0.113.7".parse().unwrap(), 24),
        ] {
            let shown = key_text(&key);
            assert_eq!(named_key(&shown).unwrap(), key, "{shown}");
        }
        assert_eq!(key_text(&Key::new("user:123").unwrap()), "user:123");
    }

    #[test]
    fn a_credential_is_a_key_by_its_digest_which_names_it_again() {
        let rules = ReloadableConfig::default();
        let policy = Policy::parse("p", "9/h; 1/h by header:X-Api-Key; 1/h by token").unwrap();
        for name in ["header:X-Api-Key", "token"] {
            let key = given_key(&rules, name, "s3cr3t").unwrap();
            let shown = key_text(&key);

            assert!(shown.starts_with("sha256~"), "{shown}");
            assert_eq!(given_key(&rules, name, &shown).unwrap(), key);
            assert_eq!(name_of_key(&policy, &key), Some("header:X-Api-Key"));
        }
        let header = HeaderKey::new("x-api-key".to_owned());
        let header = header.extract_key([&b"s3cr3t"[..]].into_iter()).unwrap();
        assert_eq!(
            given_key(&rules, "header:X-Api-Key", "s3cr3t").unwrap(),
            header
        );
    }

    #[test]
    fn a_key_of_a_limit_by_name_has_its_name() {
        let rules = ReloadableConfig::default();
        let limits = "9/h; 1/h by ip; 1/h by tenant; 1/h by header:X-Org; 1/h by global; 1/h by A; 1/h by A:b";
        let policy = Policy::parse("p", limits).unwrap();
        for (name, text) in [
            ("ip", "2001:db8:1:2::9"),
            ("tenant", "a/b"),
            ("header:X-Org", "acme"),
            ("global", "all"),
            ("A", "c"),
            ("A:b", "c"),
        ] {
            let key = given_key(&rules, name, text).unwrap();
            assert_eq!(name_of_key(&policy, &key), Some(name), "{key}");
        }
        for own in ["tenant:acme", "alice", "ip:nobody"] {
            let key = Key::new(own).unwrap();
            assert_eq!(name_of_key(&policy, &key), None, "{key}");
        }
        let address = Key::ip("203.0.113.7".parse().unwrap());
        let plain = Policy::parse("p", "9/h; 1/h by tenant").unwrap();
        assert_eq!(name_of_key(&plain, &address), None);
    }

    #[test]
    fn a_fingerprint_is_no_key() {
        let shown = Key::new("alice").unwrap().fingerprint();

        assert!(named_key(shown.as_str()).is_err());
    }

    #[test]
    fn an_address_in_the_keys_is_the_key_of_its_prefix() {
        let rules = ReloadableConfig::default();
        let key = |name: &str, text: &str| given_key(&rules, name, text);

        let network = Key::network("2001:db8:1:2::".parse().unwrap(), 64);
        assert_eq!(key("ip", "2001:db8:1:2::9"), Ok(network));
        assert!(key("ip", "alice").is_err());
        let header = key("header:X-Tenant", "acme").unwrap();
        assert_eq!(header.as_str(), "header:x-tenant:acme");
        assert_eq!(key("tenant", "acme").unwrap().as_str(), "tenant:acme");
        assert_eq!(key("A:b", "c").unwrap().as_str(), "named:A:b:c");
        assert!(key("tenant", "").is_err() && key("A:b", "").is_err());
    }
}
