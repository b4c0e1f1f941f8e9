//! The walk over the headers of a trusted peer.

use std::net::IpAddr;

use super::ClientIpResolver;
use crate::client_ip::{
    chain::{self, Element, forwarded, provider, x_forwarded_for},
    client::ClientIpSource,
    headers::{self, ChainHeader, HeaderLines},
    walk::{WalkObserver, WalkVerdict},
};

impl ClientIpResolver {
    /// The element at the position that [`behind_hops`](Self::behind_hops) sets.
    pub(super) fn counted(
        &self,
        hops: usize,
        headers: &(impl HeaderLines + ?Sized),
        observer: &mut impl WalkObserver,
    ) -> Option<(IpAddr, ClientIpSource<'_>)> {
        let index = hops.checked_sub(1)?;
        let addr = match &self.chain_header {
            ChainHeader::XForwardedFor => self.element(index, x_forwarded_for(headers), observer),
            ChainHeader::Forwarded => self.element(index, forwarded(headers), observer),
            ChainHeader::Provider(header) if index == 0 => {
                self.element(0, provider(header, headers).into_iter(), observer)
            }
            ChainHeader::Provider(_) => None,
        };
        Some((addr?, self.chain_source()))
    }

    /// The address of the element at `index`. Those before it are proxies, whatever they contain.
    fn element<'a>(
        &self,
        index: usize,
        mut chain: impl Iterator<Item = Element<'a>>,
        observer: &mut impl WalkObserver,
    ) -> Option<IpAddr> {
        let header = self.chain_header.name();
        for proxy in chain.by_ref().take(index) {
            observer.see(header, proxy.text, WalkVerdict::Trusted);
        }
        let element = chain.next()?;
        observer.see(header, element.text, verdict_of(element));
        observer.see_unread(header, chain.map(|element| element.text));
        element.addr
    }

    /// The client according to the chain header of a trusted peer.
    pub(super) fn walked(
        &self,
        headers: &(impl HeaderLines + ?Sized),
        observer: &mut impl WalkObserver,
    ) -> Option<(IpAddr, ClientIpSource<'_>)> {
        let addr = match &self.chain_header {
            ChainHeader::XForwardedFor => {
                let mut chain = x_forwarded_for(headers).peekable();
                if chain.peek().is_none() {
                    let addr = self.x_real_ip(headers, observer)?;
                    return Some((addr, ClientIpSource::XRealIp));
                }
                self.walk(chain, observer)
            }
            ChainHeader::Forwarded => self.walk(forwarded(headers), observer),
            // A provider's header names the client alone: its address is not compared with the proxies.
            ChainHeader::Provider(header) => {
                self.element(0, provider(header, headers).into_iter(), observer)
            }
        };
        Some((addr?, self.chain_source()))
    }

    /// Walks `chain`, nearest hop first.
    fn walk<'a>(
        &self,
        mut chain: impl Iterator<Item = Element<'a>>,
        observer: &mut impl WalkObserver,
    ) -> Option<IpAddr> {
        let header = self.chain_header.name();
        let mut verified = None;
        for element in chain.by_ref().take(self.max_hops) {
            // Skipping garbage would let the writer of the elements to its left choose the client.
            let Some(addr) = element.addr else {
                observer.see(header, element.text, WalkVerdict::Bad);
                break;
            };
            verified = Some(addr);
            if !self.trusted.contains(addr) {
                observer.see(header, element.text, WalkVerdict::Client);
                break;
            }
            observer.see(header, element.text, WalkVerdict::Trusted);
        }
        observer.see_unread(header, chain.map(|element| element.text));
        verified
    }

    /// The address in a single `X-Real-IP`.
    fn x_real_ip(
        &self,
        headers: &(impl HeaderLines + ?Sized),
        observer: &mut impl WalkObserver,
    ) -> Option<IpAddr> {
        if !self.reads_x_real_ip {
            return None;
        }
        let element = chain::x_real_ip(headers)?;
        observer.see(headers::X_REAL_IP, element.text, verdict_of(element));
        element.addr
    }

    /// The source that is reported for an address of the chain header.
    fn chain_source(&self) -> ClientIpSource<'_> {
        match &self.chain_header {
            ChainHeader::XForwardedFor => ClientIpSource::XForwardedFor,
            ChainHeader::Forwarded => ClientIpSource::Forwarded,
            ChainHeader::Provider(header) => ClientIpSource::Provider(header.name()),
        }
    }
}

/// The verdict about the one element that can name the client.
fn verdict_of(element: Element<'_>) -> WalkVerdict {
    match element.addr {
        Some(_) => WalkVerdict::Client,
        None => WalkVerdict::Bad,
    }
}
