//! The proxies whose forwarding headers are trusted.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr},
};

use crate::{
    client_ip::cidr::{Span, span},
    syntax::{InvalidSyntax, SMALLER_NETWORK},
};

/// The addresses of the proxies whose forwarding headers are trusted.
///
/// - An address or network is looked up in O(log n); overlapping entries are merged.
/// - A list that contains all addresses in one entry is rejected. Use
///   [`everyone`](Self::everyone) if only proxies can connect.
/// - List every proxy that requests pass, not only the nearest: the walk stops at the first
///   address that is not trusted.
///
/// ```
/// use ratelimit_http::client_ip::TrustedProxies;
///
/// let proxies = TrustedProxies::parse(["10.0.0.0/8", "2001:db8::1"])?;
/// assert!(proxies.contains("10.1.2.3".parse()?));
/// assert!(!proxies.contains("2001:db8::2".parse()?));
///
/// assert!(TrustedProxies::parse(["0.0.0.0/0"]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "trusted proxy")]
#[doc(alias = "X-Forwarded-For")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    ipv4: Ranges<u32>,
    ipv6: Ranges<u128>,
}

impl TrustedProxies {
    /// Trusts no proxy: the peer is the client.
    pub fn none() -> Self {
        Self::default()
    }

    /// Trusts every address, so any peer can choose the key it is counted by.
    ///
    /// It is right only if nothing but proxies can connect. `0.0.0.0/0` and `::/0` are rejected in
    /// a list, so that a typing error cannot mean this.
    ///
    /// ```
    /// use ratelimit_http::client_ip::TrustedProxies;
    ///
    /// let error = TrustedProxies::parse(["0.0.0.0/0"]).expect_err("it contains all addresses");
    /// assert!(error.is_everyone());
    /// assert!(TrustedProxies::everyone().contains("203.0.113.7".parse()?));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn everyone() -> Self {
        Self {
            ipv4: Ranges::new(vec![(0, u32::MAX)]),
            ipv6: Ranges::new(vec![(0, u128::MAX)]),
        }
    }

    /// Parses a list of addresses (`10.0.0.1`) and networks (`10.0.0.0/8`, `fd00::/8`).
    ///
    /// Spaces around an entry are trimmed. An IPv4-mapped network is the IPv4 network that it maps.
    ///
    /// # Errors
    ///
    /// [`InvalidSyntax`] for the first entry that is neither, that has bits after its prefix (`10.0.0.5/8`), or that
    /// contains all addresses; [`InvalidSyntax::is_everyone`] is true for the latter.
    pub fn parse<I>(entries: I) -> Result<Self, InvalidSyntax>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
        for entry in entries {
            let entry = entry.as_ref();
            let invalid = |expected: Cow<'static, str>| {
                InvalidSyntax::new(
                    "trusted proxy",
                    entry,
                    match &*expected {
                        SMALLER_NETWORK => SMALLER_OR_EVERYONE.into(),
                        _ => expected,
                    },
                )
            };
            match span(entry).map_err(invalid)? {
                Span::V4(first, last) => ipv4.push((first, last)),
                Span::V6(first, last) => ipv6.push((first, last)),
            }
        }
        Ok(Self {
            ipv4: Ranges::new(ipv4),
            ipv6: Ranges::new(ipv6),
        })
    }

    /// Whether all of IPv4 or all of IPv6 is trusted, by one entry or by several together.
    pub fn is_everyone(&self) -> bool {
        let everyone = Self::everyone();
        self.ipv4.covers(&everyone.ipv4) || self.ipv6.covers(&everyone.ipv6)
    }

    /// Whether every address that `other` trusts is trusted by this list.
    ///
    /// ```
    /// use ratelimit_http::client_ip::TrustedProxies;
    ///
    /// let wide = TrustedProxies::parse(["10.0.0.0/9", "10.128.0.0/9"])?;
    /// assert!(wide.covers(&TrustedProxies::parse(["10.0.0.0/8"])?));
    /// assert!(!wide.covers(&TrustedProxies::parse(["11.0.0.1"])?));
    /// # Ok::<(), ratelimit_http::InvalidSyntax>(())
    /// ```
    pub fn covers(&self, other: &Self) -> bool {
        self.ipv4.covers(&other.ipv4) && self.ipv6.covers(&other.ipv6)
    }

    /// Whether `addr` is trusted. An IPv4-mapped address is looked up as IPv4.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match addr.to_canonical() {
            IpAddr::V4(v4) => self.contains_ipv4(v4),
            IpAddr::V6(v6) => self.ipv6.contains(v6.to_bits()),
        }
    }

    /// Whether an IPv4 address is trusted.
    #[inline]
    pub(crate) fn contains_ipv4(&self, addr: Ipv4Addr) -> bool {
        self.ipv4.contains(addr.to_bits())
    }
}

/// The expectation in place of a network of all addresses, with the explicit alternative.
const SMALLER_OR_EVERYONE: &str =
    "a network smaller than the whole internet, or TrustedProxies::everyone";

/// Sorted, disjoint ranges; both ends are included.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranges<T>(Box<[(T, T)]>);

impl<T: Copy + Ord + Into<u128>> Ranges<T> {
    /// Sorts the ranges and removes those inside others.
    fn new(mut ranges: Vec<(T, T)>) -> Self {
        // Networks nest or are disjoint. Of two that start together the wider one sorts first, and
        // `dedup_by` removes the ones inside it.
        ranges.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        ranges.dedup_by(|next, kept| next.1 <= kept.1);
        Self(ranges.into_boxed_slice())
    }

    #[inline]
    fn contains(&self, value: T) -> bool {
        let after = self.0.partition_point(|range| range.0 <= value);
        after.checked_sub(1).is_some_and(|at| value <= self.0[at].1)
    }

    fn covers(&self, other: &Self) -> bool {
        let mut others = other.0.iter();
        others.all(|(first, last)| self.covers_range((*first).into(), (*last).into()))
    }

    /// Whether ranges without a gap between them cover `first` to `last`.
    fn covers_range(&self, mut first: u128, last: u128) -> bool {
        for (from, to) in &self.0 {
            let (from, to): (u128, u128) = ((*from).into(), (*to).into());
            if from > first {
                return false;
            }
            if to >= last {
                return true;
            }
            first = first.max(to + 1);
        }
        false
    }
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}
