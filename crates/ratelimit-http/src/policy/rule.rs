//! Which requests a policy lets pass uncounted, and which it refuses at once.

use std::{net::IpAddr, str::FromStr};

use super::path;
use crate::{
    client_ip::{Cidr, HeaderLines},
    syntax::{InvalidSyntax, field_name, trim},
};
use ratelimit_core::Key;

/// A mark of requests, for [`HttpPolicy::with_exempt_rule`](crate::policy::HttpPolicy::with_exempt_rule) and
/// [`HttpPolicy::with_block_rule`](crate::policy::HttpPolicy::with_block_rule).
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
/// assert_eq!(batch, Rule::Key(Key::new("batch").expect("is not empty")));
/// # Ok::<(), ratelimit_http::InvalidSyntax>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// The client's address: `10.0.0.0/8` or `ip:10.0.0.0/8`.
    Address(Cidr),
    /// Whose budget would be spent: `key:user:1` is [`Key::new`] of `user:1`.
    Key(Key),
    /// A header field: `header:x-internal`, or `header:x-internal=yes` for one of its lines.
    ///
    /// Clients send what header fields they like, so this tells something only of fields that a
    /// proxy sets or takes away.
    Header {
        /// The name of the field.
        name: String,
        /// What one of its lines says; anything where it is missing.
        value: Option<String>,
    },
    /// The path: `path:/health`, or `path:/internal/*` for all paths that begin so.
    Path(String),
}

impl Rule {
    /// Whether a request is meant, taken at its word.
    ///
    /// A path with a segment `.` or `..` is none that a rule names, because the service may see another
    /// one in it.
    pub fn matches_exactly<H: HeaderLines + ?Sized>(&self, request: &RuleRequest<'_, H>) -> bool {
        match self {
            Rule::Path(wanted) => {
                path::is(wanted, request.path) && !path::has_dot_segments(request.path)
            }
            _ => self.applies_beside_path(request),
        }
    }

    /// Whether a request may be meant: by its path as it is, or decoded and without dot segments.
    pub(crate) fn could_match<H: HeaderLines + ?Sized>(
        &self,
        request: &RuleRequest<'_, H>,
    ) -> bool {
        match self {
            Rule::Path(wanted) => {
                path::is(wanted, request.path) || path::is(wanted, &path::plain(request.path))
            }
            _ => self.applies_beside_path(request),
        }
    }

    fn applies_beside_path<H: HeaderLines + ?Sized>(&self, request: &RuleRequest<'_, H>) -> bool {
        match self {
            Rule::Address(network) => request.address.is_some_and(|addr| network.contains(addr)),
            Rule::Key(key) => key == request.key,
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

    /// Whether this rule means every request that `other` means.
    pub fn covers(&self, other: &Rule) -> bool {
        match (self, other) {
            (Rule::Address(wide), Rule::Address(narrow)) => wide.covers(narrow),
            (Rule::Header { name, value: None }, Rule::Header { name: same, .. }) => name == same,
            (Rule::Path(wide), Rule::Path(narrow)) => wide == narrow || path::is(wide, narrow),
            _ => self == other,
        }
    }

    /// The same rule with names as header maps look them up.
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
    fn from(network: Cidr) -> Rule {
        Rule::Address(network)
    }
}

impl From<Key> for Rule {
    fn from(key: Key) -> Rule {
        Rule::Key(key)
    }
}

impl FromStr for Rule {
    type Err = InvalidSyntax;

    fn from_str(text: &str) -> Result<Rule, InvalidSyntax> {
        let invalid = |expected| InvalidSyntax::new("rule", text, expected);
        if let Some(key) = text.strip_prefix("key:") {
            let key = Key::new(key).map_err(|_| invalid("a key such as key:user:1"))?;
            return Ok(Rule::Key(key));
        }
        if let Some(header) = text.strip_prefix("header:") {
            return header_rule(header).ok_or_else(|| {
                invalid("a field such as header:x-internal or header:x-internal=yes")
            });
        }
        if let Some(path) = text.strip_prefix("path:") {
            if !path::can_be_wanted(path) {
                return Err(invalid("a path such as path:/health or path:/internal/*"));
            }
            return Ok(Rule::Path(path.to_owned()));
        }
        let network = text.strip_prefix("ip:").unwrap_or(text).parse::<Cidr>();
        network.map(Rule::Address).map_err(|why| {
            let is_network = text.starts_with("ip:") || text.contains('/');
            invalid(if is_network { why.expected() } else { ANY })
        })
    }
}

const ANY: &str = "a network such as 10.0.0.0/8, key:, header: or path:";

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

/// What rules look at: a request, whatever crate keeps it.
#[derive(Debug)]
#[non_exhaustive]
pub struct RuleRequest<'a, H: ?Sized> {
    /// Whose budget would be spent.
    pub key: &'a Key,
    /// The client's address, as far as it is known and believed.
    pub address: Option<IpAddr>,
    /// The header fields.
    pub headers: &'a H,
    /// The path, as it was sent.
    pub path: &'a str,
}

impl<'a, H: HeaderLines + ?Sized> RuleRequest<'a, H> {
    /// A request of a client whose address is not known.
    pub const fn new(key: &'a Key, path: &'a str, headers: &'a H) -> RuleRequest<'a, H> {
        RuleRequest {
            key,
            address: None,
            headers,
            path,
        }
    }

    /// The same request, of a client at this address.
    #[must_use]
    pub const fn address(mut self, address: IpAddr) -> RuleRequest<'a, H> {
        self.address = Some(address);
        self
    }
}

/// How a blocked request is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockStatus {
    /// It may not come at all: 403.
    #[default]
    Forbidden,
    /// As if it came too often, without a time after which it may come again: 429.
    TooManyRequests,
}

impl BlockStatus {
    /// The status of the response.
    pub const fn status(self) -> u16 {
        match self {
            BlockStatus::Forbidden => 403,
            BlockStatus::TooManyRequests => 429,
        }
    }
}

/// What the rules of a policy say of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOutcome {
    /// It passes: it is not counted, not limited, and its response tells nothing.
    Exempt,
    /// It is refused before anything is spent.
    Blocked(BlockStatus),
    /// The limits decide.
    Limited,
}

#[cfg(test)]
mod tests;
