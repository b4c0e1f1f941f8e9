//! The result of resolving a client's address.

use std::{
    error, fmt,
    net::{IpAddr, Ipv6Addr},
};

use crate::client_ip::parse::client_address;

/// The client of a request: its address, the prefix that identifies it, and the source.
///
/// An IPv4 client that a NAT64 translator shows as `64:ff9b::a.b.c.d` is the client `a.b.c.d`.
///
/// It displays as its key: `ip:203.0.113.7`, `ip:2001:db8:1:2::/64`.
///
/// ```
/// use ratelimit_http::client_ip::{ClientIpResolver, ClientIpSource};
///
/// let resolver = ClientIpResolver::default();
/// let headers: &[(&str, &str)] = &[];
/// let client = resolver.resolve(Some("2001:db8:1:2::3".parse()?), headers)?;
/// assert_eq!(client.to_string(), "ip:2001:db8:1:2::/64");
/// assert_eq!((client.prefix(), client.source()), (64, ClientIpSource::Peer));
/// assert_eq!(client.whole_addr().to_string(), "2001:db8:1:2::3");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientIp<'a> {
    whole_addr: IpAddr,
    addr: IpAddr,
    ipv6_prefix: u8,
    source: ClientIpSource<'a>,
}

impl<'a> ClientIp<'a> {
    /// Cuts an IPv6 address to its prefix. An IPv4 address inside of it, mapped or by NAT64, is whole.
    pub(crate) fn new(addr: IpAddr, ipv6_prefix: u8, source: ClientIpSource<'a>) -> Self {
        let whole_addr = client_address(addr);
        let addr = match whole_addr {
            IpAddr::V6(v6) => {
                let host = u128::MAX.checked_shr(ipv6_prefix.into()).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !host))
            }
            v4 @ IpAddr::V4(_) => v4,
        };
        Self {
            whole_addr,
            addr,
            ipv6_prefix,
            source,
        }
    }

    /// The address. For IPv6 it is the network: the bits after [`prefix`](Self::prefix) are zero.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// The whole address, also for IPv6. Rules about addresses compare it.
    pub fn whole_addr(&self) -> IpAddr {
        self.whole_addr
    }

    /// The number of leading bits that identify the client; 32 for IPv4.
    pub fn prefix(&self) -> u8 {
        if self.addr.is_ipv4() {
            32
        } else {
            self.ipv6_prefix
        }
    }

    /// The source of the address.
    pub fn source(&self) -> ClientIpSource<'a> {
        self.source
    }
}

impl fmt::Display for ClientIp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr {
            IpAddr::V4(v4) => write!(f, "ip:{v4}"),
            IpAddr::V6(v6) => write!(f, "ip:{v6}/{}", self.ipv6_prefix),
        }
    }
}

/// The source of a client's key or address.
///
/// [`as_str`](Self::as_str) gives the word for logs and test vectors:
///
/// ```
/// use ratelimit_http::client_ip::ClientIpSource;
///
/// assert_eq!(ClientIpSource::XForwardedFor.as_str(), "xff");
/// assert_eq!(ClientIpSource::Provider("cf-connecting-ip").as_str(), "cf-connecting-ip");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClientIpSource<'a> {
    /// The application, or a header or query parameter that it opted into.
    Explicit,
    /// An element of `X-Forwarded-For`.
    XForwardedFor,
    /// The `for` parameter of an element of `Forwarded`.
    Forwarded,
    /// A provider's header, with its name in lower case.
    Provider(&'a str),
    /// `X-Real-IP`.
    XRealIp,
    /// The address at the other end of the connection.
    Peer,
}

impl<'a> ClientIpSource<'a> {
    /// The word for this source in logs and test vectors.
    pub fn as_str(&self) -> &'a str {
        match self {
            Self::Explicit => "explicit",
            Self::XForwardedFor => "xff",
            Self::Forwarded => "forwarded",
            Self::Provider(name) => name,
            Self::XRealIp => "x-real-ip",
            Self::Peer => "peer",
        }
    }
}

/// An error that leaves a request without a key. Such a request is rejected; it is never unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClientIpError {
    /// The peer has no address, and no trusted header contains one.
    NoAddress,
    /// An explicit key is longer than 256 bytes, not UTF-8, or contains control bytes.
    BadKey,
    /// An explicit key was sent more than once.
    AmbiguousKey,
}

impl ClientIpError {
    /// The word for this error in logs and test vectors.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NoAddress => "no_client",
            Self::BadKey => "bad_key",
            Self::AmbiguousKey => "ambiguous_key",
        }
    }
}

impl fmt::Display for ClientIpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAddress => "the request has no client address",
            Self::BadKey => "the key is not at most 256 bytes of UTF-8 without control bytes",
            Self::AmbiguousKey => "the key was sent more than once",
        })
    }
}

impl error::Error for ClientIpError {}
