//! Parsing of addresses as proxies write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest zone that is accepted; Linux limits interface names to 15 bytes.
const MAX_ZONE: usize = 16;

/// Parses an address as proxies write it: with or without a port, brackets or a zone.
///
/// - `a.b.c.d`, `a.b.c.d:port`, an IPv6 address, and `[IPv6]` with or without `:port` are accepted.
///   An IPv6 address may have a `%zone`.
/// - The port and the zone are dropped. An IPv4-mapped address becomes its IPv4 address.
/// - Everything else is `None`, including octal, hexadecimal and short forms of IPv4: different
///   programs read them as different hosts.
///
/// ```
/// use ratelimit_http::client_ip::parse_address;
///
/// assert_eq!(parse_address(b"[::ffff:203.0.113.7]:443"), parse_address(b"203.0.113.7"));
/// assert_eq!(parse_address(b"203.0.113.010"), None);
/// ```
pub fn parse_address(text: &[u8]) -> Option<IpAddr> {
    match bare(text) {
        Some(addr) => Some(addr),
        None => with_port(text, is_port),
    }
}

/// Whether `addr` is not routed on the public internet: loopback, link-local, private, or the
/// shared range `100.64.0.0/10` of carrier-grade NAT.
///
/// A forwarding header from such a peer usually comes from a proxy that is missing in the list of
/// trusted proxies.
pub fn is_private(addr: IpAddr) -> bool {
    match addr.to_canonical() {
        IpAddr::V4(v4) => is_private_ipv4(v4),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// The address by which a client is counted: that of IPv4 if the address is IPv4-mapped, or in the well-known prefix of NAT64,
/// `64:ff9b::/96` ([RFC 6052](https://www.rfc-editor.org/rfc/rfc6052)).
///
/// A service on IPv6 sees its IPv4 clients behind a translator under that prefix. Cut to a /64 they would all share one key.
pub(crate) fn client_address(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(v6) if v6.to_bits() >> 32 == NAT64 => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        other => other,
    }
}

/// The upper 96 bits of `64:ff9b::/96`.
const NAT64: u128 = 0x0064_ff9b << 64;

/// [`is_private`] for IPv4.
#[inline]
pub(crate) const fn is_private_ipv4(v4: Ipv4Addr) -> bool {
    let shared = v4.to_bits() >> 22 == Ipv4Addr::new(100, 64, 0, 0).to_bits() >> 22;
    shared || v4.is_private() || v4.is_loopback() || v4.is_link_local()
}

/// Parses an address without port and brackets; IPv6 may have a zone.
pub(crate) fn bare(text: &[u8]) -> Option<IpAddr> {
    if let Some(v4) = parse::<Ipv4Addr>(text) {
        return Some(IpAddr::V4(v4));
    }
    ipv6(text)
}

/// Parses `a.b.c.d[:port]` or `[IPv6][:port]`, the two forms in which a port is unambiguous.
pub(crate) fn with_port(text: &[u8], is_port: impl Fn(&[u8]) -> bool) -> Option<IpAddr> {
    let position = |wanted| text.iter().position(|byte| *byte == wanted);
    let (addr, rest) = if text.starts_with(b"[") {
        let end = position(b']')?;
        (ipv6(&text[1..end])?, &text[end + 1..])
    } else {
        let end = position(b':').unwrap_or(text.len());
        (IpAddr::V4(parse(&text[..end])?), &text[end..])
    };
    match rest {
        [] => Some(addr),
        [b':', port @ ..] if is_port(port) => Some(addr),
        _ => None,
    }
}

/// Whether `text` is a port: one to five digits, at most 65535.
pub(crate) fn is_port(text: &[u8]) -> bool {
    text.len() <= 5 && text.iter().all(u8::is_ascii_digit) && parse::<u16>(text).is_some()
}

/// Parses an IPv6 address with an optional zone.
fn ipv6(text: &[u8]) -> Option<IpAddr> {
    let addr = match text.iter().position(|byte| *byte == b'%') {
        Some(at) if is_zone(&text[at + 1..]) => &text[..at],
        Some(_) => return None,
        None => text,
    };
    Some(IpAddr::V6(parse::<Ipv6Addr>(addr)?).to_canonical())
}

/// Whether `text` is a zone, the name of a network interface.
fn is_zone(text: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._~-".contains(byte);
    (1..=MAX_ZONE).contains(&text.len()) && text.iter().all(allowed)
}

fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> Option<String> {
        parse_address(text.as_bytes()).map(|addr| addr.to_string())
    }

    #[test]
    fn a_port_has_one_to_five_digits_and_fits_sixteen_bits() {
        for good in ["0", "80", "00080", "65535"] {
            assert!(addr(&format!("1.2.3.4:{good}")).is_some(), "{good}");
        }
        for bad in [
            "", "65536", "000080", "+80", "-1", " 80", "80 ", "http", "80:80",
        ] {
            assert!(addr(&format!("1.2.3.4:{bad}")).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_zone_belongs_to_an_ipv6_address_and_is_dropped() {
        assert_eq!(addr("fe80::1%eth0.1_"), addr("fe80::1"));
        assert_eq!(addr("fe80::1%a~b-c.d"), addr("fe80::1"));
        assert_eq!(addr("fe80::1%0123456789abcdef"), addr("fe80::1"));
        for bad in [
            "%0123456789abcdef0",
            "%",
            "%%",
            "%a%b",
            "%a b",
            "%a/64",
            "%a]",
        ] {
            assert_eq!(addr(&format!("fe80::1{bad}")), None, "{bad}");
        }
        assert_eq!(addr("1.2.3.4%eth0"), None);
        assert_eq!(addr("[fe80::1]%eth0"), None);
    }

    #[test]
    fn clients_behind_nat64_are_their_ipv4_addresses() {
        let client = |text: &str| client_address(text.parse().expect(text)).to_string();

        assert_eq!(client("64:ff9b::203.0.113.7"), "203.0.113.7");
        assert_eq!(client("::ffff:203.0.113.7"), "203.0.113.7");
        for other in [
            "64:ff9b:1::1",
            "64:ff9b::1:0:0",
            "64:ff9a::1",
            "2001:db8::1",
        ] {
            assert_eq!(client(other), other);
        }
    }

    #[test]
    fn addresses_off_the_public_internet_are_private() {
        for private in [
            "10.1.2.3",
            "100.127.0.1",
            "127.0.0.1",
            "169.254.1.1",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:192.168.0.1",
        ] {
            assert!(is_private(private.parse().expect(private)), "{private}");
        }
        for public in [
            "100.128.0.1",
            "172.32.0.1",
            "203.0.113.7",
            "2001:db8::1",
            "::ffff:8.8.8.8",
        ] {
            assert!(!is_private(public.parse().expect(public)), "{public}");
        }
    }
}
