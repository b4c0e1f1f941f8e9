//! The client: a key that was named, or the address it comes from.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    client_ip::{ClientIpResolver, TrustedProxies},
    key::explicit::ExplicitKey,
};
use crate::{
    key::{error::KeyError, named::ClientAddress},
    middleware::RequestHead,
};
use ratelimit_core::Key;

/// The client of a request.
///
/// In this order:
///
/// 1. The [`Key`] that the application put into the request's extensions, then a header or query
///    parameter that it opted into and that passes its validator.
/// 2. The address that trusted proxies tell, by the rules of [`ClientIpResolver`].
/// 3. The peer's address. There is no key without one.
#[derive(Clone)]
pub struct ClientKey {
    addr: ClientIpResolver,
    /// The same, for the whole address of an IPv6 client.
    whole: ClientIpResolver,
    header: Option<NamedSource>,
    query: Option<NamedSource>,
    warned: Arc<AtomicBool>,
}

/// A name under which a request may choose its key, if that passes the validator.
#[derive(Clone)]
struct NamedSource {
    name: Box<str>,
    is_valid: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl ClientKey {
    /// The peer's address, with no proxy in front.
    pub fn new() -> ClientKey {
        ClientIpResolver::default().into()
    }

    /// The address that these proxies tell.
    pub fn behind(proxies: TrustedProxies) -> ClientKey {
        ClientIpResolver::behind(proxies).into()
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
        self.header = Some(NamedSource {
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
        self.query = Some(NamedSource {
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
    pub fn extract_key(&self, request: &impl RequestHead) -> Result<Key, KeyError> {
        self.extract_key_from(request, || request.peer())
    }

    /// The key of a request whose peer is found in a place of its own.
    ///
    /// # Errors
    ///
    /// As [`extract_key`](Self::extract_key).
    #[inline]
    pub fn extract_key_from(
        &self,
        request: &impl RequestHead,
        peer: impl FnOnce() -> Option<IpAddr>,
    ) -> Result<Key, KeyError> {
        if let Some(key) = self.explicit(request)? {
            return Ok(key);
        }
        let peer = peer();
        if let Some(IpAddr::V4(v4)) = peer
            && self.addr.is_direct_client(v4)
        {
            return Ok(Key::ip(v4.into()));
        }
        self.address(request, peer)
    }

    /// Where the client of a request is, whatever key it names.
    ///
    /// # Errors
    ///
    /// When it has no client address.
    pub fn client_address(&self, request: &impl RequestHead) -> Result<ClientAddress, KeyError> {
        self.client_address_from(request, request.peer())
    }

    /// Where the client of a request is whose peer was found in a place of its own.
    ///
    /// # Errors
    ///
    /// As [`client_address`](Self::client_address).
    pub fn client_address_from(
        &self,
        request: &impl RequestHead,
        peer: Option<IpAddr>,
    ) -> Result<ClientAddress, KeyError> {
        let key = self.address(request, peer)?;
        let address = self.whole.resolve(peer, request)?.addr();
        Ok(ClientAddress::new(address, key))
    }

    fn address(&self, request: &impl RequestHead, peer: Option<IpAddr>) -> Result<Key, KeyError> {
        if let Some(peer) = peer {
            self.warn_once_of_untrusted_proxy(peer, request);
        }
        let client = self.addr.resolve(peer, request)?;
        Ok(Key::network(client.addr(), client.prefix()))
    }

    #[inline]
    fn explicit(&self, request: &impl RequestHead) -> Result<Option<Key>, KeyError> {
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

    fn warn_once_of_untrusted_proxy(&self, peer: IpAddr, request: &impl RequestHead) {
        if self.warned.load(Ordering::Relaxed)
            || !self.addr.looks_like_untrusted_proxy(peer, request)
        {
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

impl NamedSource {
    fn checked(&self, key: &ExplicitKey<'_>) -> Result<Key, KeyError> {
        if !(self.is_valid)(key.as_str()) {
            return Err(KeyError::Invalid);
        }
        Ok(Key::new(key.as_str())?)
    }
}

impl Default for ClientKey {
    fn default() -> ClientKey {
        ClientKey::new()
    }
}

impl From<ClientIpResolver> for ClientKey {
    fn from(addr: ClientIpResolver) -> ClientKey {
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
