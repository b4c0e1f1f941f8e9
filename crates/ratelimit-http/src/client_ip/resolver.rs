//! The walk from the peer towards the client.

use std::net::{IpAddr, Ipv4Addr};

use crate::client_ip::{
    client::{ClientIp, ClientIpError, ClientIpSource},
    forwarded,
    headers::{self, ChainHeader, HeaderLines, ProviderHeader, has_forwarding_headers},
    parse::{self, is_private, is_private_ipv4, parse_address},
    trusted_proxies::TrustedProxies,
};
use crate::syntax::{InvalidSyntax, trim};

/// How the address of a client is found behind proxies.
///
/// ```
/// use ratelimit_http::client_ip::{ClientIpResolver, TrustedProxies};
///
/// let search = ClientIpResolver::behind(TrustedProxies::parse(["10.0.0.0/8"])?);
/// let headers = [("X-Forwarded-For", "6.6.6.6, 203.0.113.7, 10.0.0.2")];
///
/// // 6.6.6.6 is what the client wrote itself.
/// let client = search.resolve(Some("10.0.0.1".parse()?), &headers[..])?;
/// assert_eq!(client.to_string(), "ip:203.0.113.7");
///
/// // A peer that is not trusted speaks only for itself.
/// let client = search.resolve(Some("198.51.100.9".parse()?), &headers[..])?;
/// assert_eq!(client.to_string(), "ip:198.51.100.9");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIpResolver {
    trusted: TrustedProxies,
    chain_header: ChainHeader,
    hops: Option<usize>,
    max_hops: usize,
    ipv6_prefix: u8,
    real_ip: RealIp,
    unix: Unix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RealIp {
    Read,
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unix {
    Trusted,
    Untrusted,
}

impl Default for ClientIpResolver {
    fn default() -> Self {
        Self::behind(TrustedProxies::none())
    }
}

impl ClientIpResolver {
    /// Believes `trusted` about `X-Forwarded-For`, and about `X-Real-IP` where that is absent.
    pub fn behind(trusted: TrustedProxies) -> Self {
        Self {
            trusted,
            chain_header: ChainHeader::XForwardedFor,
            hops: None,
            max_hops: 32,
            ipv6_prefix: 64,
            real_ip: RealIp::Read,
            unix: Unix::Untrusted,
        }
    }

    /// Reads `header` instead of `X-Forwarded-For`; `X-Real-IP` is then not read either.
    #[must_use]
    pub fn chain_header(mut self, header: ChainHeader) -> Self {
        self.chain_header = header;
        self
    }

    /// Takes the element that many from the right, instead of asking who is trusted.
    ///
    /// For proxies whose number is known and whose addresses are not. Where there are fewer
    /// elements, or no address at that place, the peer is the client; 0 reads no header.
    #[must_use]
    pub fn trusted_hops(mut self, hops: usize) -> Self {
        self.hops = Some(hops);
        self
    }

    /// Ends the walk at the trusted element of this number, 32 unless set.
    #[must_use]
    pub fn max_hops(mut self, max_hops: usize) -> Self {
        self.max_hops = max_hops;
        self
    }

    /// Tells IPv6 clients apart by this many leading bits, 64 unless set.
    ///
    /// # Errors
    ///
    /// When `bits` is more than an address has.
    pub fn ipv6_prefix(mut self, bits: u8) -> Result<Self, InvalidSyntax> {
        if bits > 128 {
            return Err(InvalidSyntax::new(
                "IPv6 prefix",
                &bits.to_string(),
                "0 to 128",
            ));
        }
        self.ipv6_prefix = bits;
        Ok(self)
    }

    /// Never reads `X-Real-IP`, which some proxies pass through as the client wrote it.
    #[must_use]
    pub fn ignore_x_real_ip(mut self) -> Self {
        self.real_ip = RealIp::Ignored;
        self
    }

    /// Trusts peers without an address, such as a proxy at the other end of a Unix socket.
    #[must_use]
    pub fn trust_unix_sockets(mut self) -> Self {
        self.unix = Unix::Trusted;
        self
    }

    /// Finds the client of a request that `peer` sent with `headers`.
    ///
    /// `peer` is the address at the other end of the connection, `None` on a Unix socket.
    ///
    /// # Errors
    ///
    /// [`ClientIpError::NoAddress`] when the peer has no address and is not trusted to name one, or
    /// names none.
    pub fn resolve(
        &self,
        peer: Option<IpAddr>,
        headers: &(impl HeaderLines + ?Sized),
    ) -> Result<ClientIp<'_>, ClientIpError> {
        if peer.is_none() && self.unix == Unix::Untrusted {
            return Err(ClientIpError::NoAddress);
        }
        let named = match self.hops {
            Some(hops) => self.counted(hops, headers),
            None if peer.is_none_or(|peer| self.trusted.contains(peer)) => self.walked(headers),
            None => None,
        };
        let (addr, source) = match (named, peer) {
            (Some(named), _) => named,
            (None, Some(peer)) => (peer, ClientIpSource::Peer),
            (None, None) => return Err(ClientIpError::NoAddress),
        };
        Ok(ClientIp::new(addr, self.ipv6_prefix, source))
    }

    /// Whether `peer` is the client whatever its headers say, and no proxy that should be listed.
    #[inline]
    pub(crate) fn is_direct_client(&self, peer: Ipv4Addr) -> bool {
        self.hops.is_none() && !is_private_ipv4(peer) && !self.trusted.contains_ipv4(peer)
    }

    /// Whether `peer` looks like a proxy that should be listed: private, not trusted, and
    /// forwarding for somebody.
    ///
    /// All clients behind such a peer share one budget, which is worth one warning.
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

    fn counted(
        &self,
        hops: usize,
        headers: &(impl HeaderLines + ?Sized),
    ) -> Option<(IpAddr, ClientIpSource<'_>)> {
        let place = hops.checked_sub(1)?;
        let addr = match &self.chain_header {
            ChainHeader::XForwardedFor => x_forwarded_for(headers).nth(place)?,
            ChainHeader::Forwarded => forwarded(headers).nth(place)?,
            ChainHeader::Provider(header) if place == 0 => provider(header, headers),
            ChainHeader::Provider(_) => None,
        };
        Some((addr?, self.chain_source()))
    }

    fn walked(
        &self,
        headers: &(impl HeaderLines + ?Sized),
    ) -> Option<(IpAddr, ClientIpSource<'_>)> {
        let addr = match &self.chain_header {
            ChainHeader::XForwardedFor => {
                let mut chain = x_forwarded_for(headers).peekable();
                if chain.peek().is_none() {
                    return Some((self.x_real_ip(headers)?, ClientIpSource::XRealIp));
                }
                self.walk(chain)
            }
            ChainHeader::Forwarded => self.walk(forwarded(headers)),
            ChainHeader::Provider(header) => provider(header, headers),
        };
        Some((addr?, self.chain_source()))
    }

    /// Walks `chain`, nearest hop first, where `None` is an element that is no address.
    fn walk(&self, chain: impl Iterator<Item = Option<IpAddr>>) -> Option<IpAddr> {
        let mut verified = None;
        for hop in chain.take(self.max_hops) {
            // Passing over garbage would hand the choice to whoever wrote what is left of it.
            let Some(addr) = hop else { break };
            verified = Some(addr);
            if !self.trusted.contains(addr) {
                break;
            }
        }
        verified
    }

    fn x_real_ip(&self, headers: &(impl HeaderLines + ?Sized)) -> Option<IpAddr> {
        match self.real_ip {
            RealIp::Read => parse_address(single(headers.lines(headers::X_REAL_IP))?),
            RealIp::Ignored => None,
        }
    }

    fn chain_source(&self) -> ClientIpSource<'_> {
        match &self.chain_header {
            ChainHeader::XForwardedFor => ClientIpSource::XForwardedFor,
            ChainHeader::Forwarded => ClientIpSource::Forwarded,
            ChainHeader::Provider(header) => ClientIpSource::Provider(header.name()),
        }
    }
}

fn x_forwarded_for(headers: &(impl HeaderLines + ?Sized)) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.lines(headers::X_FORWARDED_FOR).rev();
    let elements = lines.flat_map(|line| line.rsplit(|byte| *byte == b','));
    elements
        .map(trim)
        .filter(|element| !element.is_empty())
        .map(parse_address)
}

fn forwarded(headers: &(impl HeaderLines + ?Sized)) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.lines(headers::FORWARDED).rev();
    let elements = lines.flat_map(forwarded::elements_from_the_right);
    elements
        .map(trim)
        .filter(|element| !element.is_empty())
        .map(forwarded::client)
}

fn provider(header: &ProviderHeader, headers: &(impl HeaderLines + ?Sized)) -> Option<IpAddr> {
    let value = single(headers.lines(header.name()))?;
    if !header.always_ends_in_port() {
        return parse_address(value);
    }
    let colon = value.iter().rposition(|byte| *byte == b':')?;
    let (addr, port) = (&value[..colon], &value[colon + 1..]);
    if !parse::is_port(port) {
        return None;
    }
    parse::bare(addr).or_else(|| parse::with_port(addr, |_| false))
}

/// The value of a field that must not be sent twice: of two, one may be the client's.
fn single<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let value = lines.next()?;
    if lines.next().is_some() {
        return None;
    }
    Some(trim(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_the_client_at_once_just_where_the_walk_would_not_go_on() {
        let listed = TrustedProxies::parse(["10.0.0.0/8", "203.0.113.7"]).unwrap();
        let searches = [
            ClientIpResolver::default(),
            ClientIpResolver::behind(listed),
            ClientIpResolver::behind(TrustedProxies::everyone()),
            ClientIpResolver::default().trusted_hops(1),
        ];
        let headers = [("x-forwarded-for", "198.51.100.1")];

        for search in searches {
            for peer in [
                [203, 0, 113, 7],
                [203, 0, 113, 8],
                [10, 0, 0, 1],
                [100, 64, 0, 1],
            ] {
                let found = search.resolve(Some(peer.into()), &headers[..]).unwrap();
                let is_walked = found.source() != ClientIpSource::Peer
                    || search.looks_like_untrusted_proxy(peer.into(), &headers[..]);

                assert_eq!(search.is_direct_client(peer.into()), !is_walked, "{peer:?}");
            }
        }
    }
}
