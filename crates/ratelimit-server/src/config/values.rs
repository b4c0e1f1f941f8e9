//! Settings with a syntax, validated when they are parsed.

use std::{convert::Infallible, fmt, str::FromStr};

use clap::ValueEnum;
use ratelimit_core::{Algorithm, KeyDisplay, RedisConfig};
use ratelimit_http::client_ip::{ChainHeader, TrustedProxies};
use ratelimit_http::policy::HttpPolicy;
use regex_lite::Regex;

/// The numbers that a field accepts, for messages.
pub(super) const WHOLE_NUMBER: &str = "a whole number from 0";

/// A named policy, written `login=5/min; 20/h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedPolicy(pub(crate) HttpPolicy);

impl NamedPolicy {
    fn new(name: &str, limits: &str) -> Result<NamedPolicy, String> {
        let policy = HttpPolicy::parse(canonical(name), limits);
        policy.map(NamedPolicy).map_err(|why| why.to_string())
    }
}

impl FromStr for NamedPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedPolicy, String> {
        let Some((name, limits)) = text.split_once('=') else {
            return Err("expected a name and limits such as login=5/min; 20/h".to_owned());
        };
        NamedPolicy::new(name.trim(), limits.trim())
    }
}

/// The policy name for a name or an alias of an algorithm; other names are returned unchanged.
pub(super) fn canonical(name: &str) -> &str {
    match Algorithm::from_name(name) {
        Some(algorithm) => algorithm.as_str(),
        None => name,
    }
}

/// An address or network of trusted proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network(pub(crate) String);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let checked = TrustedProxies::parse([text]);
        checked
            .map(|_| Network(text.trim_ascii().to_owned()))
            .map_err(|why| why.to_string())
    }
}

/// A host name of this server, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostName(String);

impl HostName {
    pub(crate) fn is(&self, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(name)
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<HostName, String> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let name = text.trim();
        if name.parse::<std::net::IpAddr>().is_ok() || is_localhost(name) {
            return Err(format!("{name} is always allowed"));
        }
        if name.is_empty() || !name.bytes().all(is_name) || name.ends_with('.') {
            return Err("expected a host name such as limits.example, without a port".to_owned());
        }
        Ok(HostName(name.to_ascii_lowercase()))
    }
}

/// Whether a name is `localhost` or below it. Browsers take such names for this machine, and resolvers should (RFC 6761). A
/// resolver that asks the network for names below `localhost` gives another machine a say, so such a name alone never
/// replaces the admin token.
pub(crate) fn is_localhost(name: &str) -> bool {
    let parent = name.len().checked_sub("localhost".len());
    let Some((below, parent)) = parent.and_then(|at| name.split_at_checked(at)) else {
        return false;
    };
    parent.eq_ignore_ascii_case("localhost")
        && (below.is_empty() || below.len() > 1 && below.ends_with('.'))
}

/// The URL of a Redis server. `Display` and `Debug` omit the password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisUrl(pub(crate) String);

impl RedisUrl {
    /// For flags and variables: an error of clap quotes the whole text with its password, so it is checked later.
    #[allow(clippy::unnecessary_wraps, reason = "clap asks for a result")]
    pub(super) fn unchecked(text: &str) -> Result<RedisUrl, Infallible> {
        Ok(RedisUrl(text.to_owned()))
    }
}

impl FromStr for RedisUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<RedisUrl, String> {
        let checked = RedisConfig::new(text);
        checked
            .map(|_| RedisUrl(text.to_owned()))
            .map_err(|why| why.to_string())
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            return f.write_str("redis");
        };
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        // The query may contain a password as well.
        let host = host.split('?').next().unwrap_or(host);
        write!(f, "{scheme}://{host}")
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

/// A regular expression that must match a whole key.
#[derive(Clone, Debug)]
pub(crate) struct KeyPattern(Regex);

impl KeyPattern {
    pub(crate) fn accepts(&self, key: &str) -> bool {
        self.0.is_match(key)
    }
}

impl FromStr for KeyPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyPattern, String> {
        let whole = Regex::new(&format!(r"\A(?:{text})\z"));
        whole.map(KeyPattern).map_err(|why| why.to_string())
    }
}

/// The display of keys by `offenders`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OffenderKeys {
    /// As they are
    Shown,
    /// By the first 16 digits of their SHA-256 digest
    Digest,
}

impl From<OffenderKeys> for KeyDisplay {
    fn from(keys: OffenderKeys) -> KeyDisplay {
        match keys {
            OffenderKeys::Shown => KeyDisplay::Plain,
            OffenderKeys::Digest => KeyDisplay::Fingerprint,
        }
    }
}

/// The console, a page for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConsoleMode {
    /// There is none
    Off,
    /// It shows everything and changes nothing
    Read,
    /// It resets keys and reloads the configuration as well
    Write,
}

/// The header in which proxies list the addresses of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainName(pub(crate) ChainHeader);

impl FromStr for ChainName {
    type Err = String;

    fn from_str(text: &str) -> Result<ChainName, String> {
        text.parse()
            .map(ChainName)
            .map_err(|why: ratelimit_http::InvalidSyntax| why.to_string())
    }
}

/// The variant of that name.
pub(super) fn choice<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let known = T::value_variants().iter();
        let known = known.filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = known.map(|value| value.get_name().to_owned()).collect();
        format!("expected one of {}, not {text:?}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redis_address_is_shown_without_its_secrets() {
        let url: RedisUrl = "redis://user:s3cr3t@cache:6379/2".parse().unwrap();

        assert_eq!(url.to_string(), "redis://cache:6379/2");
        assert!(!format!("{url:?}").contains("s3cr3t"));
    }

    #[test]
    fn a_pattern_holds_for_the_whole_key() {
        let pattern: KeyPattern = "user:[0-9]+|admin".parse().unwrap();

        assert!(pattern.accepts("user:12") && pattern.accepts("admin"));
        assert!(!pattern.accepts("user:12\n") && !pattern.accepts("xadmin"));
    }

    #[test]
    fn a_policy_named_like_an_algorithm_has_one_name() {
        let policy: NamedPolicy = "SLIDING_WINDOW = sliding_window_log 5/s".parse().unwrap();

        assert_eq!(policy.0.name(), "sliding_window_log");
    }
}
