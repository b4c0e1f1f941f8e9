//! CIDR blocks.

use std::{
    borrow::Cow,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use crate::{
    client_ip::parse::client_address,
    syntax::{InvalidSyntax, SMALLER_NETWORK},
};

/// A CIDR block: one address (`10.0.0.1`) or a network (`10.0.0.0/8`, `fd00::/8`).
///
/// - Spaces around the text are trimmed.
/// - Bits after the prefix are an error that shows the network: `10.1.2.3/8` is `10.0.0.0/8` or a typing error.
/// - An IPv4-mapped network is the IPv4 network that it maps: `::ffff:10.0.0.0/104` is `10.0.0.0/8`. So is one of NAT64, such as
///   `64:ff9b::198.51.100.0/120`: its clients are counted by their IPv4 addresses.
/// - A network of all addresses, such as `0.0.0.0/0`, is rejected. In a list of trusted proxies or
///   exempt clients it is almost always a mistake.
///
/// ```
/// use ratelimit_http::client_ip::Cidr;
///
/// let office: Cidr = "192.0.2.0/24".parse()?;
/// assert!(office.contains("192.0.2.7".parse()?));
/// assert!(office.contains("::ffff:192.0.2.7".parse()?));
/// assert!(!office.contains("192.0.3.7".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "network")]
#[doc(alias = "subnet")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr(Span);

/// The first and the last address of a block, as integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Span {
    V4(u32, u32),
    V6(u128, u128),
}

impl Cidr {
    /// Whether `addr` is in this block. An IPv4-mapped address, and one of NAT64 (`64:ff9b::/96`), is compared as IPv4.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.0, client_address(addr)) {
            (Span::V4(first, last), IpAddr::V4(v4)) => (first..=last).contains(&v4.to_bits()),
            (Span::V6(first, last), IpAddr::V6(v6)) => (first..=last).contains(&v6.to_bits()),
            _ => false,
        }
    }

    /// The blocks with a shorter prefix that contain this one, smallest first.
    ///
    /// - A block of all addresses is not among them, because it cannot be parsed either.
    /// - An IPv4 address has 31 of them, an IPv6 address 127.
    ///
    /// Look them up in a map to find out whether a list has a wider block, in place of a comparison with all of it.
    ///
    /// ```
    /// use ratelimit_http::client_ip::Cidr;
    ///
    /// let small: Cidr = "10.1.2.3".parse()?;
    /// assert!(small.supernets().any(|wider| wider.to_string() == "10.0.0.0/8"));
    /// assert_eq!(small.supernets().count(), 31);
    /// # Ok::<(), ratelimit_http::InvalidSyntax>(())
    /// ```
    pub fn supernets(&self) -> impl Iterator<Item = Cidr> + use<> {
        let mut span = self.0;
        std::iter::from_fn(move || {
            span = match span {
                Span::V4(first, last) => {
                    let rest = (first ^ last) << 1 | 1;
                    Span::V4(first & !rest, first | rest)
                }
                Span::V6(first, last) => {
                    let rest = (first ^ last) << 1 | 1;
                    Span::V6(first & !rest, first | rest)
                }
            };
            let is_everyone =
                matches!(span, Span::V4(0, u32::MAX)) || matches!(span, Span::V6(0, u128::MAX));
            (!is_everyone).then_some(Cidr(span))
        })
        .fuse()
    }

    /// Whether every address of `other` is in this block.
    ///
    /// ```
    /// use ratelimit_http::client_ip::Cidr;
    ///
    /// let wide: Cidr = "10.0.0.0/8".parse()?;
    /// assert!(wide.covers(&"10.255.0.0/16".parse()?));
    /// assert!(!wide.covers(&"fd00::/8".parse()?));
    /// # Ok::<(), ratelimit_http::InvalidSyntax>(())
    /// ```
    pub fn covers(&self, other: &Cidr) -> bool {
        match (self.0, other.0) {
            (Span::V4(first, last), Span::V4(from, to)) => first <= from && to <= last,
            (Span::V6(first, last), Span::V6(from, to)) => first <= from && to <= last,
            _ => false,
        }
    }
}

impl From<IpAddr> for Cidr {
    /// The block of this one address.
    fn from(addr: IpAddr) -> Cidr {
        Cidr(match client_address(addr) {
            IpAddr::V4(v4) => Span::V4(v4.to_bits(), v4.to_bits()),
            IpAddr::V6(v6) => Span::V6(v6.to_bits(), v6.to_bits()),
        })
    }
}

impl FromStr for Cidr {
    type Err = InvalidSyntax;

    /// Parses an address, or an address and the length of its prefix.
    ///
    /// # Errors
    ///
    /// [`InvalidSyntax`] if `text` is neither, if the prefix is longer than an address, if the address has bits
    /// after the prefix, or if the block contains all addresses ([`InvalidSyntax::is_everyone`]).
    fn from_str(text: &str) -> Result<Cidr, InvalidSyntax> {
        let invalid = |expected| InvalidSyntax::new("network", text, expected);
        let span = span(text).map_err(invalid)?;
        let ends = match span {
            Span::V6(first, last) => {
                [first, last].map(|end| client_address(IpAddr::V6(end.into())))
            }
            Span::V4(..) => return Ok(Cidr(span)),
        };
        match ends {
            [
                IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpAddr::V4(Ipv4Addr::BROADCAST),
            ] => Err(invalid(SMALLER_NETWORK.into())),
            [IpAddr::V4(first), IpAddr::V4(last)] => {
                Ok(Cidr(Span::V4(first.to_bits(), last.to_bits())))
            }
            _ => Ok(Cidr(span)),
        }
    }
}

impl fmt::Display for Cidr {
    /// Writes `10.0.0.0/8`, or `10.0.0.1` for a single address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, prefix, widest) = match self.0 {
            Span::V4(first, last) => {
                let addr = IpAddr::V4(Ipv4Addr::from_bits(first));
                (addr, (first ^ last).leading_zeros(), u32::BITS)
            }
            Span::V6(first, last) => {
                let addr = IpAddr::V6(Ipv6Addr::from_bits(first));
                (addr, (first ^ last).leading_zeros(), u128::BITS)
            }
        };
        if prefix == widest {
            return first.fmt(f);
        }
        write!(f, "{first}/{prefix}")
    }
}

const ADDRESS: &str = "an address such as 10.0.0.1 or a network such as 10.0.0.0/8";

/// Reads an address or a network; the error says what is expected in place of `text`.
pub(crate) fn span(text: &str) -> Result<Span, Cow<'static, str>> {
    // A list such as "10.0.0.0/8, fd00::/8" is often split at its commas alone.
    let text = text.trim_ascii();
    let (addr, prefix) = match text.split_once('/') {
        Some((addr, prefix)) => (addr, Some(prefix)),
        None => (text, None),
    };
    let addr: IpAddr = addr.parse().map_err(|_| ADDRESS)?;
    let (widest, expected) = if addr.is_ipv4() {
        (32, "a prefix from 1 to 32")
    } else {
        (128, "a prefix from 1 to 128")
    };
    let prefix = prefix
        .map_or(Some(widest), number)
        .filter(|prefix| *prefix <= widest)
        .ok_or(expected)?;

    match (addr, addr.to_canonical()) {
        // A mapped network with a prefix of at most 96 contains all of IPv4.
        (IpAddr::V6(_), IpAddr::V4(_)) if prefix <= 96 => Err(SMALLER_NETWORK.into()),
        (_, _) if prefix == 0 => Err(SMALLER_NETWORK.into()),
        (written, IpAddr::V4(v4)) => {
            let prefix = if written.is_ipv6() {
                prefix - 96
            } else {
                prefix
            };
            let rest = u32::MAX.checked_shr(prefix).unwrap_or(0);
            let span = Span::V4(v4.to_bits() & !rest, v4.to_bits() | rest);
            without_host_bits(span, v4.to_bits() & rest != 0, v4.into())
        }
        (_, IpAddr::V6(v6)) => {
            let rest = u128::MAX.checked_shr(prefix).unwrap_or(0);
            let span = Span::V6(v6.to_bits() & !rest, v6.to_bits() | rest);
            without_host_bits(span, v6.to_bits() & rest != 0, v6.into())
        }
    }
}

/// The network, unless the address of its text has bits after the prefix. `10.0.0.5/8` can be meant as the network
/// or as the address, and a wrong guess trusts, exempts or blocks the clients of all the others.
fn without_host_bits(
    network: Span,
    has_host_bits: bool,
    addr: IpAddr,
) -> Result<Span, Cow<'static, str>> {
    if has_host_bits {
        let network = Cidr(network);
        return Err(format!("the network {network} or the address {addr}").into());
    }
    Ok(network)
}

/// Parses a decimal number. `u32::from_str` also accepts `+8` and `08`, which are typing errors here.
fn number(text: &str) -> Option<u32> {
    let plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_ip::TrustedProxies;

    fn network(text: &str) -> Cidr {
        text.parse().expect(text)
    }

    #[test]
    fn a_network_is_written_as_it_is_read() {
        for text in [
            "10.0.0.0/8",
            "192.0.2.7",
            "fd00::/8",
            "2001:db8::1",
            "0.0.0.0/1",
        ] {
            assert_eq!(network(text).to_string(), text);
        }
        assert_eq!(network("::ffff:10.0.0.0/104").to_string(), "10.0.0.0/8");
    }

    #[test]
    fn a_network_of_nat64_is_that_of_its_ipv4_clients() {
        let nat64 = network("64:ff9b::198.51.100.0/120");

        assert_eq!(nat64, network("198.51.100.0/24"));
        assert!(nat64.contains("64:ff9b::198.51.100.7".parse().unwrap()));
        assert!(network("198.51.100.7").contains("64:ff9b::198.51.100.7".parse().unwrap()));
        assert!("64:ff9b::/96".parse::<Cidr>().unwrap_err().is_everyone());
        assert!(network("64:ff9b::/32").contains("64:ff9b:1::1".parse().unwrap()));
    }

    #[test]
    fn bits_after_the_prefix_are_an_error_that_shows_the_network() {
        for (text, expected) in [
            (
                "10.0.0.5/8",
                "the network 10.0.0.0/8 or the address 10.0.0.5",
            ),
            (
                "2001:db8::1/32",
                "the network 2001:db8::/32 or the address 2001:db8::1",
            ),
            (
                "::ffff:10.1.2.3/104",
                "the network 10.0.0.0/8 or the address 10.1.2.3",
            ),
        ] {
            let error = text.parse::<Cidr>().unwrap_err();
            assert_eq!(error.expected(), expected);
            let error = TrustedProxies::parse([text]).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("invalid trusted proxy {text:?}: expected {expected}")
            );
        }
        assert!("10.0.0.5/32".parse::<Cidr>().is_ok());
    }

    #[test]
    fn spaces_around_a_network_are_trimmed_and_those_inside_are_errors() {
        assert_eq!(network(" 10.0.0.0/8\t"), network("10.0.0.0/8"));
        for text in ["10.0.0.0 /8", "10.0.0.0/ 8", " ", "\u{a0}10.0.0.0/8"] {
            assert!(text.parse::<Cidr>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_network_covers_what_lies_inside_and_itself() {
        let wide = network("10.0.0.0/8");

        assert!(wide.covers(&wide));
        assert!(wide.covers(&network("10.255.0.0/16")));
        assert!(!network("10.255.0.0/16").covers(&wide));
        assert!(!wide.covers(&network("11.0.0.0")));
        assert!(!wide.covers(&network("fd00::/8")));
        assert!(!network("0.0.0.0/1").contains("fd00::1".parse().unwrap()));
    }

    #[test]
    fn the_whole_internet_is_no_network() {
        for text in ["0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96"] {
            let message = text.parse::<Cidr>().unwrap_err().to_string();
            assert!(
                message.ends_with("smaller than the whole internet"),
                "{message}"
            );
        }
    }
}
