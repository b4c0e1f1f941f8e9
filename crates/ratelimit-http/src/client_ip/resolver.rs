//! Resolving the client's address from the peer and the forwarding headers.

mod chain_walk;

use std::net::{IpAddr, Ipv4Addr};

use crate::client_ip::{
    client::{ClientIp, ClientIpError, ClientIpSource},
    headers::{ChainHeader, HeaderLines, has_forwarding_headers},
    parse::{is_private, is_private_ipv4},
    trusted_proxies::TrustedProxies,
    walk::{ClientIpWalk, WalkObserver, WalkRecorder},
};
use crate::syntax::InvalidSyntax;

/// Finds the address of a client behind proxies.
///
/// - A peer that is not trusted is the client. Its headers are not read.
/// - From a trusted peer, the chain header is walked from right to left. The first address that is
///   not trusted is the client.
/// - An element that is not an address ends the walk at the last verified hop: skipping it would
///   let the client choose the result.
/// - IPv6 clients are identified by their /64.
///
/// The [module](crate::client_ip) lists all rules.
///
/// ```
/// use ratelimit_http::client_ip::{ClientIpResolver, TrustedProxies};
///
/// let resolver = ClientIpResolver::behind(TrustedProxies::parse(["10.0.0.0/8"])?);
/// let headers = [("X-Forwarded-For", "6.6.6.6, 203.0.113.7, 10.0.0.2")];
///
/// // The client wrote 6.6.6.6 itself.
/// let client = resolver.resolve(Some("10.0.0.1".parse()?), &headers[..])?;
/// assert_eq!(client.to_string(), "ip:203.0.113.7");
///
/// // This peer is not trusted, so it is the client.
/// let client = resolver.resolve(Some("198.51.100.9".parse()?), &headers[..])?;
/// assert_eq!(client.to_string(), "ip:198.51.100.9");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "X-Forwarded-For")]
#[doc(alias = "real ip")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "SmartIpKeyExtractor")]
pub struct ClientIpResolver {
    trusted: TrustedProxies,
    chain_header: ChainHeader,
    hops: Option<usize>,
    max_hops: usize,
    ipv6_prefix: u8,
    reads_x_real_ip: bool,
    trusts_unix_sockets: bool,
}

impl Default for ClientIpResolver {
    /// Trusts no proxy: the peer is the client.
    fn default() -> Self {
        Self::behind(TrustedProxies::none())
    }
}

impl ClientIpResolver {
    /// Trusts the `X-Forwarded-For` of these proxies, and their `X-Real-IP` if that is absent.
    pub fn behind(trusted: TrustedProxies) -> Self {
        Self {
            trusted,
            chain_header: ChainHeader::XForwardedFor,
            hops: None,
            max_hops: 32,
            ipv6_prefix: 64,
            reads_x_real_ip: true,
            trusts_unix_sockets: false,
        }
    }

    /// Takes the element at this position from the right, in place of a list of trusted proxies.
    ///
    /// It is for proxies whose number is known and whose addresses are not: every peer is one of
    /// them. The peer is the client if the chain has fewer elements or no address at that position.
    /// 0 reads no header.
    ///
    /// ```
    /// use ratelimit_http::client_ip::ClientIpResolver;
    ///
    /// // A load balancer, and a CDN in front of it.
    /// let resolver = ClientIpResolver::behind_hops(2);
    /// let headers = [("X-Forwarded-For", "6.6.6.6, 203.0.113.7, 198.51.100.1")];
    /// let client = resolver.resolve(Some("10.0.0.1".parse()?), &headers[..])?;
    /// assert_eq!(client.to_string(), "ip:203.0.113.7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn behind_hops(hops: usize) -> Self {
        Self {
            hops: Some(hops),
            ..Self::default()
        }
    }

    /// The same resolver with another list of trusted proxies. It counts no hops.
    ///
    /// ```
    /// use ratelimit_http::client_ip::{ClientIpResolver, TrustedProxies};
    ///
    /// let proxies = TrustedProxies::parse(["10.0.0.0/8"])?;
    /// let resolver = ClientIpResolver::behind_hops(2).with_trusted(proxies);
    /// assert!(!resolver.trusts(Some("198.51.100.9".parse()?)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_trusted(self, trusted: TrustedProxies) -> Self {
        Self {
            trusted,
            hops: None,
            ..self
        }
    }

    /// Reads `header` instead of `X-Forwarded-For`. `X-Real-IP` is then not read.
    ///
    /// ```
    /// use ratelimit_http::client_ip::{ClientIpResolver, TrustedProxies};
    ///
    /// let cdn = TrustedProxies::parse(["198.51.100.0/24"])?;
    /// let resolver = ClientIpResolver::behind(cdn).chain_header("CF-Connecting-IP".parse()?);
    /// let headers = [("CF-Connecting-IP", "203.0.113.7"), ("X-Forwarded-For", "6.6.6.6")];
    /// let client = resolver.resolve(Some("198.51.100.1".parse()?), &headers[..])?;
    /// assert_eq!(client.to_string(), "ip:203.0.113.7");
    /// assert_eq!(client.source().as_str(), "cf-connecting-ip");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn chain_header(mut self, header: ChainHeader) -> Self {
        self.chain_header = header;
        self
    }

    /// Ends the walk after this many trusted elements. The default is 32.
    ///
    /// It bounds the work that a long header can cause.
    ///
    /// # Panics
    ///
    /// If the resolver [counts hops](Self::behind_hops): it takes one element and walks over none.
    #[must_use]
    pub fn max_hops(mut self, max_hops: usize) -> Self {
        assert!(
            self.hops.is_none(),
            "a resolver that counts hops has no walk to end"
        );
        self.max_hops = max_hops;
        self
    }

    /// Identifies IPv6 clients by this many leading bits, 32 to 128. The default is 64.
    ///
    /// A shorter prefix would be a whole provider, whose customers would share one budget.
    ///
    /// # Errors
    ///
    /// [`InvalidSyntax`] if `bits` is less than 32 or more than 128.
    pub fn ipv6_prefix(mut self, bits: u8) -> Result<Self, InvalidSyntax> {
        if !(32..=128).contains(&bits) {
            return Err(InvalidSyntax::new(
                "IPv6 prefix",
                &bits.to_string(),
                "32 to 128",
            ));
        }
        self.ipv6_prefix = bits;
        Ok(self)
    }

    /// Does not read `X-Real-IP`, which some proxies pass through as the client wrote it.
    #[must_use]
    pub fn ignore_x_real_ip(mut self) -> Self {
        self.reads_x_real_ip = false;
        self
    }

    /// Trusts peers without an address: proxies at the other end of a Unix socket.
    ///
    /// ```
    /// use ratelimit_http::client_ip::{ClientIpError, ClientIpResolver};
    ///
    /// let headers = [("X-Real-IP", "203.0.113.7")];
    /// let resolver = ClientIpResolver::default();
    /// assert_eq!(resolver.resolve(None, &headers[..]), Err(ClientIpError::NoAddress));
    ///
    /// let resolver = resolver.trust_unix_sockets();
    /// assert_eq!(resolver.resolve(None, &headers[..])?.to_string(), "ip:203.0.113.7");
    /// # Ok::<(), ClientIpError>(())
    /// ```
    #[must_use]
    pub fn trust_unix_sockets(mut self) -> Self {
        self.trusts_unix_sockets = true;
        self
    }

    /// Finds the client of a request that `peer` sent with `headers`.
    ///
    /// `peer` is the address at the other end of the connection, `None` on a Unix socket.
    ///
    /// # Errors
    ///
    /// [`ClientIpError::NoAddress`] if the peer has no address and is not trusted, or if its headers
    /// contain no address either.
    pub fn resolve(
        &self,
        peer: Option<IpAddr>,
        headers: &(impl HeaderLines + ?Sized),
    ) -> Result<ClientIp<'_>, ClientIpError> {
        self.resolve_with(peer, headers, &mut ())
    }

    /// Finds the client as [`resolve`](Self::resolve) does, and keeps the steps on the way.
    ///
    /// ```
    /// use ratelimit_http::client_ip::{ClientIpResolver, TrustedProxies, WalkVerdict};
    ///
    /// let resolver = ClientIpResolver::behind(TrustedProxies::parse(["10.0.0.0/8"])?);
    /// let headers = [("X-Forwarded-For", "6.6.6.6, 203.0.113.7")];
    /// let walk = resolver.trace(Some("10.0.0.1".parse()?), &headers[..]);
    ///
    /// assert_eq!(walk.client?.to_string(), "ip:203.0.113.7");
    /// let verdicts: Vec<WalkVerdict> = walk.steps.iter().map(|step| step.verdict).collect();
    /// assert_eq!(verdicts, [WalkVerdict::Trusted, WalkVerdict::Client, WalkVerdict::NotRead]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trace(
        &self,
        peer: Option<IpAddr>,
        headers: &(impl HeaderLines + ?Sized),
    ) -> ClientIpWalk<'_> {
        let mut recorder = WalkRecorder::new(peer, self.trusts(peer));
        let client = self.resolve_with(peer, headers, &mut recorder);
        recorder.add_unread(headers, &self.chain_header);
        recorder.finish(client)
    }

    /// Finds the client. `observer` sees the elements of headers.
    fn resolve_with(
        &self,
        peer: Option<IpAddr>,
        headers: &(impl HeaderLines + ?Sized),
        observer: &mut impl WalkObserver,
    ) -> Result<ClientIp<'_>, ClientIpError> {
        if peer.is_none() && !self.trusts_unix_sockets {
            return Err(ClientIpError::NoAddress);
        }
        let named = match self.hops {
            Some(hops) => self.counted(hops, headers, observer),
            None if self.trusts(peer) => self.walked(headers, observer),
            None => None,
        };
        let (addr, source) = match (named, peer) {
            (Some(named), _) => named,
            (None, Some(peer)) => (peer, ClientIpSource::Peer),
            (None, None) => return Err(ClientIpError::NoAddress),
        };
        Ok(ClientIp::new(addr, self.ipv6_prefix, source))
    }

    /// Whether the headers of `peer` are believed; `None` is a peer on a Unix socket.
    ///
    /// The address of the client is not the only thing that a proxy tells. Read the path, the host or
    /// the protocol of the original request from the headers of such a peer only.
    ///
    /// ```
    /// use ratelimit_http::client_ip::{ClientIpResolver, TrustedProxies};
    ///
    /// let resolver = ClientIpResolver::behind(TrustedProxies::parse(["10.0.0.0/8"])?);
    /// assert!(resolver.trusts(Some("10.0.0.1".parse()?)));
    /// assert!(!resolver.trusts(Some("198.51.100.9".parse()?)));
    /// assert!(!resolver.trusts(None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trusts(&self, peer: Option<IpAddr>) -> bool {
        match (peer, self.hops) {
            (None, _) => self.trusts_unix_sockets,
            (Some(_), Some(hops)) => hops > 0,
            (Some(peer), None) => self.trusted.contains(peer),
        }
    }

    /// Whether `peer` is the client whatever its headers contain, and does not look like a proxy.
    ///
    /// Fast path: such a request needs no look at its headers.
    #[inline]
    pub(crate) fn is_direct_client(&self, peer: Ipv4Addr) -> bool {
        self.hops.is_none() && !is_private_ipv4(peer) && !self.trusted.contains_ipv4(peer)
    }

    /// Whether `peer` looks like a proxy that is missing in the list: it has a private address, is
    /// not trusted, and sends forwarding headers.
    ///
    /// All clients behind such a peer share one budget, so [`ClientKey`](crate::key::ClientKey) logs
    /// one warning about it.
    ///
    /// ```
    /// use ratelimit_http::client_ip::ClientIpResolver;
    ///
    /// let (resolver, headers) = (ClientIpResolver::default(), [("X-Forwarded-For", "203.0.113.7")]);
    /// assert!(resolver.looks_like_untrusted_proxy("10.0.0.1".parse()?, &headers[..]));
    /// assert!(!resolver.looks_like_untrusted_proxy("198.51.100.9".parse()?, &headers[..]));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn looks_like_untrusted_proxy(
        &self,
        peer: IpAddr,
        headers: &(impl HeaderLines + ?Sized),
    ) -> bool {
        self.hops.is_none()
            && is_private(peer)
            && !self.trusted.contains(peer)
            && (has_forwarding_headers(headers)
                || headers.lines(self.chain_header.name()).next().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_path_for_direct_clients_agrees_with_the_walk() {
        let listed = TrustedProxies::parse(["10.0.0.0/8", "203.0.113.7"]).unwrap();
        let resolvers = [
            ClientIpResolver::default(),
            ClientIpResolver::behind(listed),
            ClientIpResolver::behind(TrustedProxies::everyone()),
            ClientIpResolver::behind_hops(1),
        ];
        let headers = [("x-forwarded-for", "198.51.100.1")];

        for resolver in resolvers {
            for peer in [
                [203, 0, 113, 7],
                [203, 0, 113, 8],
                [10, 0, 0, 1],
                [100, 64, 0, 1],
            ] {
                let found = resolver.resolve(Some(peer.into()), &headers[..]).unwrap();
                let is_walked = found.source() != ClientIpSource::Peer
                    || resolver.looks_like_untrusted_proxy(peer.into(), &headers[..]);

                assert_eq!(
                    resolver.is_direct_client(peer.into()),
                    !is_walked,
                    "{peer:?}"
                );
            }
        }
    }
}
