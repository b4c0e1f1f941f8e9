//! The client: a key that was named, or the address it comes from.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::adapter::{framework::RequestHead, key_names::Whereabouts, no_key::NoKey};
use crate::{
    client_addr::{ClientAddr, ExplicitKey, TrustedProxies},
    key::Key,
};

/// The client of a request.
///
/// In this order:
///
/// 1. The [`Key`] that the application put into the request's extensions, then a header or query
///    parameter that it opted into and that passes its validator.
/// 2. The address that trusted proxies tell, by the rules of [`ClientAddr`].
/// 3. The peer's address. There is no key without one.
#[derive(Clone)]
pub struct ClientKey {
    addr: ClientAddr,
    /// The same, for the whole address of an IPv6 client.
    whole: ClientAddr,
    header: Option<Named>,
    query: Option<Named>,
    warned: Arc<AtomicBool>,
}

/// A name under which a request may choose its key, if that passes the validator.
#[derive(Clone)]
struct Named {
    name: Box<str>,
    is_valid: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl ClientKey {
    /// The peer's address, with no proxy in front.
    pub fn new() -> ClientKey {
        ClientAddr::default().into()
    }

    /// The address that these proxies tell.
    pub fn behind(proxies: TrustedProxies) -> ClientKey {
        ClientAddr::behind(proxies).into()
    }

    /// Takes a key from the header `name` if it passes `is_valid`; else the answer is 400.
    ///
    /// A client that can name its own key can escape its limit: let only keys pass that are known.
    #[must_use]
    pub fn explicit_header(
        mut self,
        name: &str,
        is_valid: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> ClientKey {
        self.header = Some(Named {
            name: name.to_ascii_lowercase().into(),
            is_valid: Arc::new(is_valid),
        });
        self
    }

    /// Takes a key from the query parameter `name` if it passes `is_valid`; else the answer is 400.
    ///
    /// A client that can name its own key can escape its limit: let only keys pass that are known.
    #[must_use]
    pub fn explicit_query(
        mut self,
        name: &str,
        is_valid: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> ClientKey {
        self.query = Some(Named {
            name: name.into(),
            is_valid: Arc::new(is_valid),
        });
        self
    }

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// When it names what cannot be a key, or has no client address.
    #[inline]
    pub fn find(&self, request: &impl RequestHead) -> Result<Key, NoKey> {
        self.find_from(request, || request.peer())
    }

    /// The key of a request whose peer is found in a place of its own.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    #[inline]
    pub fn find_from(
        &self,
        request: &impl RequestHead,
        peer: impl FnOnce() -> Option<IpAddr>,
    ) -> Result<Key, NoKey> {
        if let Some(key) = self.explicit(request)? {
            return Ok(key);
        }
        let peer = peer();
        if let Some(IpAddr::V4(v4)) = peer
            && self.addr.is_client(v4)
        {
            return Ok(Key::ipv4(v4));
        }
        self.address(request, peer)
    }

    /// Where the client of a request is, whatever key it names.
    ///
    /// # Errors
    ///
    /// When it has no client address.
    pub fn whereabouts(&self, request: &impl RequestHead) -> Result<Whereabouts, NoKey> {
        self.whereabouts_from(request, request.peer())
    }

    /// Where the client of a request is whose peer was found in a place of its own.
    ///
    /// # Errors
    ///
    /// As [`whereabouts`](Self::whereabouts).
    pub fn whereabouts_from(
        &self,
        request: &impl RequestHead,
        peer: Option<IpAddr>,
    ) -> Result<Whereabouts, NoKey> {
        let key = self.address(request, peer)?;
        let address = self.whole.find(peer, request)?.addr();
        Ok(Whereabouts::new(address, key))
    }

    fn address(&self, request: &impl RequestHead, peer: Option<IpAddr>) -> Result<Key, NoKey> {
        if let Some(peer) = peer {
            self.warn_once_if_overlooked(peer, request);
        }
        let client = self.addr.find(peer, request)?;
        Ok(Key::network(client.addr(), client.prefix()))
    }

    #[inline]
    fn explicit(&self, request: &impl RequestHead) -> Result<Option<Key>, NoKey> {
        if let Some(key) = request.explicit_key() {
            return Ok(Some(key));
        }
        if let Some(header) = &self.header
            && let Some(key) = ExplicitKey::from_header(request, &header.name)?
        {
            return header.checked(&key).map(Some);
        }
        if let Some(query) = &self.query
            && let Some(key) = ExplicitKey::from_query(request.query().as_bytes(), &query.name)?
        {
            return query.checked(&key).map(Some);
        }
        Ok(None)
    }

    fn warn_once_if_overlooked(&self, peer: IpAddr, request: &impl RequestHead) {
        if self.warned.load(Ordering::Relaxed) || !self.addr.overlooks(peer, request) {
            return;
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            request.warn(
                peer,
                format_args!(
                    "a private peer that is not trusted sends forwarding headers: all clients \
                     behind it share one budget; if it is your proxy, add \
                     ClientKey::behind(TrustedProxies::parse([\"{peer}\"])?)"
                ),
            );
        }
    }
}

impl Named {
    fn checked(&self, key: &ExplicitKey<'_>) -> Result<Key, NoKey> {
        if !(self.is_valid)(key.as_str()) {
            return Err(NoKey::BadKey);
        }
        Ok(Key::new(key.as_str())?)
    }
}

impl Default for ClientKey {
    fn default() -> ClientKey {
        ClientKey::new()
    }
}

impl From<ClientAddr> for ClientKey {
    fn from(addr: ClientAddr) -> ClientKey {
        let whole = addr.clone().ipv6_prefix(128);
        ClientKey {
            whole: whole.expect("an address has 128 bits"),
            addr,
            header: None,
            query: None,
            warned: Arc::default(),
        }
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKey")
            .field("addr", &self.addr)
            .field("header", &self.header.as_ref().map(|named| &named.name))
            .field("query", &self.query.as_ref().map(|named| &named.name))
            .finish_non_exhaustive()
    }
}
