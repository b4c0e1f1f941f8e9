//! What the search for a client finds.

use std::{
    error, fmt,
    net::{IpAddr, Ipv6Addr},
};

/// The client of a request, as far as it is told apart from others.
///
/// Prints as its key: `ip:203.0.113.7`, `ip:2001:db8:1:2::/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientIp<'a> {
    addr: IpAddr,
    ipv6_prefix: u8,
    source: ClientIpSource<'a>,
}

impl<'a> ClientIp<'a> {
    pub(crate) fn new(addr: IpAddr, ipv6_prefix: u8, source: ClientIpSource<'a>) -> Self {
        let addr = match addr.to_canonical() {
            IpAddr::V6(v6) => {
                let host = u128::MAX.checked_shr(ipv6_prefix.into()).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !host))
            }
            v4 @ IpAddr::V4(_) => v4,
        };
        Self {
            addr,
            ipv6_prefix,
            source,
        }
    }

    /// The address; of an IPv6 address the network that [`prefix`](Self::prefix) leaves.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// How many leading bits of the address tell clients apart: 32 for IPv4.
    pub fn prefix(&self) -> u8 {
        if self.addr.is_ipv4() {
            32
        } else {
            self.ipv6_prefix
        }
    }

    /// Where the address was found.
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

/// Where a key was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClientIpSource<'a> {
    /// Named by the application, or by a header or query parameter that it opted into.
    Explicit,
    /// An element of `X-Forwarded-For`.
    XForwardedFor,
    /// The `for` of an element of `Forwarded`.
    Forwarded,
    /// A provider's header, by its name in lower case.
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

/// Why a request has no key; it never means that the request is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClientIpError {
    /// The peer has no address and nothing that can be trusted names one.
    NoAddress,
    /// An explicit key is too long, no UTF-8, or holds control bytes.
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
