//! Rules that exempt or block requests.

use std::{fmt, net::IpAddr, str::FromStr};

use super::path::{self, PathReadings};
use crate::{
    client_ip::{Cidr, HeaderLines},
    key::RuleKey,
    syntax::{InvalidSyntax, field_name, trim},
};
use ratelimit_core::Key;

/// A condition on requests, for
/// [`HttpPolicy::with_exempt_rule`](crate::policy::HttpPolicy::with_exempt_rule) and
/// [`HttpPolicy::with_block_rule`](crate::policy::HttpPolicy::with_block_rule).
///
/// | text | matches |
/// |---|---|
/// | `10.0.0.0/8`, `ip:10.0.0.0/8` | the client's address |
/// | `key:user:1`, `printed:user:1`, `secret:api-key:VALUE` | the key that the request is counted by, as [`RuleKey`] says |
/// | `header:x-internal`, `header:x-internal=yes` | a header, or a header with a value |
/// | `path:/health`, `path:/internal/*` | a path, or all paths that begin so |
///
/// ```
/// use ratelimit_core::Key;
/// use ratelimit_http::policy::Rule;
///
/// let office: Rule = "192.0.2.0/24".parse()?;
/// let batch: Rule = "key:batch".parse()?;
/// let tested: Rule = "header:x-load-test=yes".parse()?;
/// let health: Rule = "path:/health".parse()?;
/// let inner: Rule = "path:/internal/*".parse()?;
///
/// assert_eq!(batch, Rule::from(Key::new("batch").expect("is not empty")));
/// # Ok::<(), ratelimit_http::InvalidSyntax>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// The client's address: `10.0.0.0/8` or `ip:10.0.0.0/8`.
    Address(Cidr),
    /// The key that the request is counted by: `key:TEXT`, `printed:TEXT` or `secret:KIND:VALUE`.
    Key(RuleKey),
    /// A header: `header:x-internal`, or `header:x-internal=yes` for one of its lines.
    ///
    /// Clients can send any header, so use it only for headers that a proxy sets or removes.
    Header {
        /// The name of the header.
        name: String,
        /// The value of one of its lines; `None` matches any value.
        value: Option<String>,
    },
    /// The path: `path:/health`, or `path:/internal/*` for all paths that begin with `/internal/`.
    ///
    /// An exempt rule matches only what every service reads as that path, a block rule everything that one
    /// could. `docs/reference/policy-file.md` has a table of such paths.
    Path(String),
}

impl Rule {
    /// Whether the rule certainly matches a request. Exemptions use it.
    ///
    /// A path matches as it was sent. It never matches if a service could read it as another path: if it has a
    /// segment `.` or `..`, or if its part that a star stands for has a path parameter (`;x`), a backslash, a
    /// control character, `%25`, a broken escape or invalid UTF-8.
    pub fn matches_exactly<H: HeaderLines + ?Sized>(&self, request: &RuleRequest<'_, H>) -> bool {
        match self {
            Rule::Path(wanted) => path::certainly_matches(wanted, request.path),
            _ => self.matches_beside_path(request),
        }
    }

    /// Whether the rule could match a request, whose path is `path`. Blocking uses it.
    pub(crate) fn could_match<H: HeaderLines + ?Sized>(
        &self,
        request: &RuleRequest<'_, H>,
        path: &PathReadings<'_>,
    ) -> bool {
        match self {
            Rule::Path(wanted) => path.could_match(wanted),
            _ => self.matches_beside_path(request),
        }
    }

    /// Whether a rule matches that is not about the path.
    fn matches_beside_path<H: HeaderLines + ?Sized>(&self, request: &RuleRequest<'_, H>) -> bool {
        match self {
            Rule::Address(network) => request.address.is_some_and(|addr| network.contains(addr)),
            Rule::Key(wanted) => wanted.key() == request.key,
            Rule::Header { name, value } => {
                let mut lines = request.headers.lines(name).map(trim);
                match value {
                    Some(value) => lines.any(|line| line == value.as_bytes()),
                    None => lines.next().is_some(),
                }
            }
            Rule::Path(_) => false,
        }
    }

    /// Whether this rule matches every request that `other` matches.
    ///
    /// ```
    /// use ratelimit_http::policy::Rule;
    ///
    /// let internal: Rule = "path:/internal/*".parse()?;
    /// assert!(internal.covers(&"path:/internal/health".parse()?));
    /// # Ok::<(), ratelimit_http::InvalidSyntax>(())
    /// ```
    pub fn covers(&self, other: &Rule) -> bool {
        match (self, other) {
            (Rule::Address(wide), Rule::Address(narrow)) => wide.covers(narrow),
            (Rule::Header { name, value: None }, Rule::Header { name: same, .. }) => name == same,
            (Rule::Path(wide), Rule::Path(narrow)) => wide == narrow || path::matches(wide, narrow),
            (Rule::Key(one), Rule::Key(other)) => one.key() == other.key(),
            _ => self == other,
        }
    }

    /// The same rule with its header in lower case, as header maps look names up.
    pub(crate) fn in_lower_case(self) -> Rule {
        match self {
            Rule::Header { name, value } => Rule::Header {
                name: name.to_ascii_lowercase(),
                value,
            },
            other => other,
        }
    }
}

impl From<Cidr> for Rule {
    /// A rule about the client's address.
    fn from(network: Cidr) -> Rule {
        Rule::Address(network)
    }
}

impl From<Key> for Rule {
    /// A rule about the key that a request is counted by.
    fn from(key: Key) -> Rule {
        Rule::Key(key.into())
    }
}

impl From<RuleKey> for Rule {
    /// A rule about the key that a request is counted by.
    fn from(key: RuleKey) -> Rule {
        Rule::Key(key)
    }
}

impl fmt::Display for Rule {
    /// Writes the rule as a policy file has it, without the value of a secret.
    ///
    /// ```
    /// use ratelimit_http::policy::Rule;
    ///
    /// let tested: Rule = "header:x-load-test=yes".parse()?;
    /// assert_eq!(tested.to_string(), "header:x-load-test=yes");
    /// let secret: Rule = "secret:api-key:s3cr3t".parse()?;
    /// assert_eq!(secret.to_string(), "secret:api-key:...");
    /// # Ok::<(), ratelimit_http::InvalidSyntax>(())
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Address(network) => network.fmt(f),
            Rule::Key(key) => key.fmt(f),
            Rule::Header { name, value: None } => write!(f, "header:{name}"),
            Rule::Header {
                name,
                value: Some(value),
            } => write!(f, "header:{name}={value}"),
            Rule::Path(path) => write!(f, "path:{path}"),
        }
    }
}

impl FromStr for Rule {
    type Err = InvalidSyntax;

    /// Parses a rule by its prefix. A text without a prefix is an address or a network.
    ///
    /// # Errors
    ///
    /// [`InvalidSyntax`] if the part after the prefix is empty or malformed. Its message gives an
    /// example of what was expected.
    fn from_str(text: &str) -> Result<Rule, InvalidSyntax> {
        let invalid = |expected| InvalidSyntax::new("rule", text, expected);
        if let Some(key) = RuleKey::parse_prefixed(text) {
            return key.map(Rule::Key);
        }
        if let Some(header) = text.strip_prefix("header:") {
            return header_rule(header).ok_or_else(|| {
                invalid("a field such as header:x-internal or header:x-internal=yes")
            });
        }
        if let Some(path) = text.strip_prefix("path:") {
            if !path.is_ascii() {
                return Err(invalid(
                    "a path in ASCII such as path:/caf%C3%A9: write it percent-encoded",
                ));
            }
            if !path::is_valid_pattern(path) {
                return Err(invalid("a path such as path:/health or path:/internal/*"));
            }
            return Ok(Rule::Path(path.to_owned()));
        }
        let network = text.strip_prefix("ip:").unwrap_or(text).parse::<Cidr>();
        network.map(Rule::Address).map_err(|error| {
            let is_network = text.starts_with("ip:") || text.contains('/');
            let expected = match text {
                path if path.starts_with('/') => format!("path:{path}, a rule about a path"),
                _ if is_network => error.expected().to_owned(),
                _ => ANY.to_owned(),
            };
            InvalidSyntax::new("rule", text, expected)
        })
    }
}

/// The expectation for a text without a known prefix.
const ANY: &str = "a network such as 10.0.0.0/8, key:, printed:, secret:, header: or path:";

/// Parses `name` or `name=value`.
fn header_rule(text: &str) -> Option<Rule> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let is_value = |value: &str| {
        let trimmed = trim(value.as_bytes()).len() == value.len();
        trimmed && !value.is_empty() && !value.bytes().any(|byte| byte.is_ascii_control())
    };
    if !value.is_none_or(is_value) {
        return None;
    }
    Some(Rule::Header {
        name: field_name(name)?,
        value: value.map(str::to_owned),
    })
}

/// The parts of a request that rules compare.
#[derive(Debug)]
#[non_exhaustive]
pub struct RuleRequest<'a, H: ?Sized> {
    /// The key that the request is counted by.
    pub key: &'a Key,
    /// The client's address, or `None` if it is not known.
    pub address: Option<IpAddr>,
    /// The headers.
    pub headers: &'a H,
    /// The path as it was sent, without the query.
    pub path: &'a str,
}

impl<'a, H: HeaderLines + ?Sized> RuleRequest<'a, H> {
    /// A request whose client address is not known.
    pub const fn new(key: &'a Key, path: &'a str, headers: &'a H) -> RuleRequest<'a, H> {
        RuleRequest {
            key,
            address: None,
            headers,
            path,
        }
    }

    /// Sets the client's address.
    #[must_use]
    pub const fn address(mut self, address: IpAddr) -> RuleRequest<'a, H> {
        self.address = Some(address);
        self
    }
}

/// The status of the response to a blocked request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockStatus {
    /// 403: the client must not send such requests.
    #[default]
    Forbidden,
    /// 429 without `Retry-After`: the client cannot tell a block from a limit.
    TooManyRequests,
}

impl BlockStatus {
    /// The status code.
    pub const fn status(self) -> u16 {
        match self {
            BlockStatus::Forbidden => 403,
            BlockStatus::TooManyRequests => 429,
        }
    }
}

/// The outcome of a policy's rules for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleOutcome {
    /// The request passes. It is not counted, and its response gets no rate limit headers.
    Exempt,
    /// The request is rejected before anything is spent.
    Blocked(BlockStatus),
    /// No rule matches, so the limits decide.
    Limited,
}

#[cfg(test)]
mod tests;
