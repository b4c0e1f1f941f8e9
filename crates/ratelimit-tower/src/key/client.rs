//! The client as a key, and the peer's address in the request's extensions.

use std::{fmt, net::IpAddr, sync::Arc};

use http::{HeaderName, request::Parts};
use ratelimit_core::Key;
use ratelimit_http::client_ip::{ClientIpResolver, TrustedProxies};

use super::{ClientAddress, KeyError, KeyExtractor};
use crate::framework::Head;

/// The client of a request.
///
/// The first of these that is present is the key:
///
/// 1. The [`Key`] that the application put into the request's extensions.
/// 2. A header or query parameter that the application opted into, if it passes its validator.
/// 3. The address in the headers of trusted proxies, by the rules of [`ClientIpResolver`].
/// 4. The peer's address: [`PeerAddr`](crate::PeerAddr) in the request's extensions, or the result of
///    [`peer_by`](Self::peer_by).
///
/// A request without any of them is rejected with 500, and the log says what to add.
///
/// ```
/// use ratelimit_http::client_ip::TrustedProxies;
/// use ratelimit_tower::{ClientKey, KeyExtractor, PeerAddr};
///
/// let key = ClientKey::behind(TrustedProxies::parse(["10.0.0.0/8"])?);
/// let (request, ()) = http::Request::builder()
///     .extension(PeerAddr("10.0.0.1:4711".parse()?))
///     .header("x-forwarded-for", "6.6.6.6, 203.0.113.7")
///     .body(())?
///     .into_parts();
/// assert_eq!(key.extract(&request)?.as_str(), "ip:203.0.113.7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[doc(alias("PeerIpKeyExtractor", "X-Forwarded-For"))]
pub struct ClientKey {
    client: ratelimit_http::key::ClientKey,
    peer: Option<Arc<PeerOf>>,
}

type PeerOf = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

impl ClientKey {
    /// Identifies clients by the peer's address. It is for services without a proxy in front.
    pub fn new() -> ClientKey {
        ClientIpResolver::default().into()
    }

    /// Identifies clients by the address in the forwarding headers of these proxies.
    pub fn behind(proxies: TrustedProxies) -> ClientKey {
        ClientIpResolver::behind(proxies).into()
    }

    /// Sets the function that finds the peer's address, in place of [`PeerAddr`](crate::PeerAddr).
    #[must_use]
    pub fn peer_by(
        mut self,
        peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> ClientKey {
        self.peer = Some(Arc::new(peer));
        self
    }

    /// Takes the key from the header `name`. A key that fails `is_valid` is rejected with 400.
    ///
    /// A client that chooses its own key can escape its limit, so accept only known keys.
    #[must_use]
    pub fn explicit_header(
        self,
        name: HeaderName,
        is_valid: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> ClientKey {
        self.map_client(move |client| client.explicit_header(name.as_str(), is_valid))
    }

    /// Takes the key from the query parameter `name`. A key that fails `is_valid` is rejected with 400.
    ///
    /// A client that chooses its own key can escape its limit, so accept only known keys.
    #[must_use]
    pub fn explicit_query(
        self,
        name: &str,
        is_valid: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> ClientKey {
        self.map_client(|client| client.explicit_query(name, is_valid))
    }

    fn map_client(
        mut self,
        change: impl FnOnce(ratelimit_http::key::ClientKey) -> ratelimit_http::key::ClientKey,
    ) -> ClientKey {
        self.client = change(self.client);
        self
    }
}

impl Default for ClientKey {
    fn default() -> ClientKey {
        ClientKey::new()
    }
}

impl From<ClientIpResolver> for ClientKey {
    fn from(resolver: ClientIpResolver) -> ClientKey {
        ClientKey {
            client: resolver.into(),
            peer: None,
        }
    }
}

impl KeyExtractor for ClientKey {
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        let head = Head(request);
        match &self.peer {
            Some(peer) => self.client.extract_key_from(&head, || peer(request)),
            None => self.client.extract_key(&head),
        }
    }

    fn client_address(&self, request: &Parts) -> Option<Result<ClientAddress, KeyError>> {
        let head = Head(request);
        Some(match &self.peer {
            Some(peer) => self.client.client_address_from(&head, peer(request)),
            None => self.client.client_address(&head),
        })
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}
