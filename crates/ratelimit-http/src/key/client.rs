//! The client as a key: its address, or a key that the application chose.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    client_ip::{ClientIp, ClientIpResolver, ClientIpSource, TrustedProxies},
    key::{credential::is_credential, explicit::ExplicitKey},
};
use crate::{
    framework::RequestHead,
    key::{error::KeyError, named::ClientAddress},
};
use ratelimit_core::Key;

/// The client of a request.
///
/// The first of these that is present is the key:
///
/// 1. The [`Key`] that the application put into the request's extensions.
/// 2. A header or query parameter that the application opted into, if it passes its validator.
/// 3. The address in the headers of trusted proxies, by the rules of [`ClientIpResolver`].
/// 4. The peer's address.
///
/// A request without any of them is rejected with 500, because the service is not configured to know
/// its clients. A private peer that is not trusted and sends forwarding headers causes one warning.
///
/// ```
/// use ratelimit_http::{client_ip::TrustedProxies, key::ClientKey};
///
/// let direct = ClientKey::new();
/// let behind_a_proxy = ClientKey::behind(TrustedProxies::parse(["10.0.0.0/8"])?);
/// # let _ = (direct, behind_a_proxy);
/// # Ok::<(), ratelimit_http::InvalidSyntax>(())
/// ```
#[doc(alias = "ip")]
#[derive(Clone)]
pub struct ClientKey {
    resolver: ClientIpResolver,
    header: Option<NamedSource>,
    query: Option<NamedSource>,
    warned: Arc<AtomicBool>,
    warned_silent: Arc<AtomicBool>,
}

/// A header or query parameter in which a request may send its key.
#[derive(Clone)]
struct NamedSource {
    name: Box<str>,
    is_valid: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl ClientKey {
    /// Identifies clients by the peer's address. It is for services without a proxy in front.
    pub fn new() -> ClientKey {
        ClientIpResolver::default().into()
    }

    /// Identifies clients by the address in the forwarding headers of these proxies.
    pub fn behind(proxies: TrustedProxies) -> ClientKey {
        ClientIpResolver::behind(proxies).into()
    }

    /// Takes the key from the header `name`. A key that fails `is_valid` is rejected with 400.
    ///
    /// The key is [`Key::new`] of the value, or [`Key::hashed`] with the tag `key` if the name is that of a
    /// [credential](crate::key::is_credential). Rules name the latter by `secret:key:VALUE`.
    ///
    /// A client that chooses its own key can escape its limit, so accept only known keys.
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

    /// Takes the key from the query parameter `name`. A key that fails `is_valid` is rejected with
    /// 400. That of a credential is hashed, as by [`explicit_header`](Self::explicit_header).
    ///
    /// A client that chooses its own key can escape its limit, so accept only known keys.
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
    /// - [`KeyError::Invalid`] or [`KeyError::Ambiguous`] if the request contains an explicit key that
    ///   is malformed, fails its validator, or is sent twice.
    /// - [`KeyError::NoClientAddress`] if neither the peer nor a trusted header has an address.
    #[inline]
    pub fn extract_key(&self, request: &impl RequestHead) -> Result<Key, KeyError> {
        self.extract_key_from(request, || request.peer())
    }

    /// The key of a request whose peer `peer` finds. It is called only if the address is needed.
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
        // Fast path: a public peer that is not trusted is the client, whatever its headers. It saves 180 instructions, 10 % of
        // the layer (`cargo xtask gate`).
        if let Some(IpAddr::V4(v4)) = peer
            && self.resolver.is_direct_client(v4)
        {
            return Ok(Key::ip(v4.into()));
        }
        let client = self.client(request, peer)?;
        Ok(Key::network(client.addr(), client.prefix()))
    }

    /// The address of the client, whatever explicit key the request has.
    ///
    /// # Errors
    ///
    /// [`KeyError::NoClientAddress`] if neither the peer nor a trusted header has an address.
    pub fn client_address(&self, request: &impl RequestHead) -> Result<ClientAddress, KeyError> {
        self.client_address_from(request, request.peer())
    }

    /// The address of the client of a request from `peer`.
    ///
    /// # Errors
    ///
    /// As [`client_address`](Self::client_address).
    pub fn client_address_from(
        &self,
        request: &impl RequestHead,
        peer: Option<IpAddr>,
    ) -> Result<ClientAddress, KeyError> {
        let client = self.client(request, peer)?;
        let key = Key::network(client.addr(), client.prefix());
        Ok(ClientAddress::new(client.whole_addr(), key))
    }

    /// The client's address, by the rules of the resolver.
    fn client(
        &self,
        request: &impl RequestHead,
        peer: Option<IpAddr>,
    ) -> Result<ClientIp<'_>, KeyError> {
        if let Some(peer) = peer {
            self.warn_once_of_untrusted_proxy(peer, request);
        }
        let client = self.resolver.resolve(peer, request)?;
        if let Some(peer) = peer
            && client.source() == ClientIpSource::Peer
            && self.resolver.trusts(Some(peer))
        {
            self.warn_once_of_silent_proxy(peer, request);
        }
        Ok(client)
    }

    /// Logs one warning about a trusted proxy that does not name its client.
    fn warn_once_of_silent_proxy(&self, peer: IpAddr, request: &impl RequestHead) {
        if !self.warned_silent.swap(true, Ordering::Relaxed) {
            request.warn(
                peer,
                format_args!(
                    "a trusted proxy sends no forwarding header with an address: all clients behind it \
                     share one budget; let it send the header that docs/explain/client-key.md lists (requests \
                     of the proxy itself, such as health checks, need none)"
                ),
            );
        }
    }

    /// The key that the application or the request chose.
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

    /// Logs one warning about a peer that looks like a proxy and is not trusted.
    fn warn_once_of_untrusted_proxy(&self, peer: IpAddr, request: &impl RequestHead) {
        if self.warned.load(Ordering::Relaxed)
            || !self.resolver.looks_like_untrusted_proxy(peer, request)
        {
            return;
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            request.warn(
                peer,
                format_args!(
                    "a private peer that is not trusted sends forwarding headers: all clients \
                     behind it share one budget; if it is your proxy, pass \
                     ClientKey::behind(TrustedProxies::parse([\"{peer}\"])?) to key_by of the layer, or to \
                     set_global_defaults(Defaults::new().client_key(...)) for all limits and #[rate_limit]"
                ),
            );
        }
    }
}

impl NamedSource {
    /// The key, if it passes the validator.
    fn checked(&self, key: &ExplicitKey<'_>) -> Result<Key, KeyError> {
        if !(self.is_valid)(key.as_str()) {
            return Err(KeyError::Invalid);
        }
        if is_credential(&*self.name) {
            return Ok(Key::hashed("key", key.as_str())?);
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
    /// Identifies clients by the address that `resolver` finds.
    fn from(resolver: ClientIpResolver) -> ClientKey {
        ClientKey {
            resolver,
            header: None,
            query: None,
            warned: Arc::default(),
            warned_silent: Arc::default(),
        }
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKey")
            .field("resolver", &self.resolver)
            .field("header", &self.header.as_ref().map(|named| &named.name))
            .field("query", &self.query.as_ref().map(|named| &named.name))
            .finish_non_exhaustive()
    }
}
