//! The client: a key that was named, or the address it comes from.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use http::{HeaderMap, HeaderName, HeaderValue, Request, request::Parts};
use ratelimit_core::{ClientAddr, ExplicitKey, HeaderLines, Key, TrustedProxies};
use tower_service::Service;

use super::{KeyExtractor, NoKey};

/// The address at the other end of the connection, in the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// The client of a request.
///
/// In this order:
///
/// 1. The [`Key`] that the application put into the request's extensions, then a header or query
///    parameter that it opted into and that passes its validator.
/// 2. The address that trusted proxies tell, by the rules of [`ClientAddr`].
/// 3. The peer's address: [`PeerAddr`] in the request's extensions, or what
///    [`peer_by`](Self::peer_by) finds. There is no key without one.
///
/// ```
/// use ratelimit_core::TrustedProxies;
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
pub struct ClientKey {
    addr: ClientAddr,
    peer: Option<Arc<PeerOf>>,
    header: Option<(HeaderName, Arc<Validator>)>,
    query: Option<(Box<str>, Arc<Validator>)>,
    warned: Arc<AtomicBool>,
}

type PeerOf = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;
type Validator = dyn Fn(&str) -> bool + Send + Sync;

impl ClientKey {
    /// The peer's address, with no proxy in front.
    pub fn new() -> ClientKey {
        ClientAddr::default().into()
    }

    /// The address that these proxies tell.
    pub fn behind(proxies: TrustedProxies) -> ClientKey {
        ClientAddr::behind(proxies).into()
    }

    /// Finds the peer's address in a place of one's own, where it is not in [`PeerAddr`].
    #[must_use]
    pub fn peer_by(
        mut self,
        peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> ClientKey {
        self.peer = Some(Arc::new(peer));
        self
    }

    /// Takes a key from the header `name` if it passes `is_valid`; else the answer is 400.
    ///
    /// A client that can name its own key can escape its limit: let only keys pass that are known.
    #[must_use]
    pub fn explicit_header(
        mut self,
        name: HeaderName,
        is_valid: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> ClientKey {
        self.header = Some((name, Arc::new(is_valid)));
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
        self.query = Some((name.into(), Arc::new(is_valid)));
        self
    }

    fn explicit(&self, request: &Parts) -> Result<Option<Key>, NoKey> {
        if let Some(key) = request.extensions.get::<Key>() {
            return Ok(Some(key.clone()));
        }
        if let Some((name, is_valid)) = &self.header {
            let lines = Lines(&request.headers);
            if let Some(key) = ExplicitKey::from_header(&lines, name.as_str())? {
                return valid(&key, is_valid).map(Some);
            }
        }
        if let Some((name, is_valid)) = &self.query {
            let query = request.uri.query().unwrap_or_default();
            if let Some(key) = ExplicitKey::from_query(query.as_bytes(), name)? {
                return valid(&key, is_valid).map(Some);
            }
        }
        Ok(None)
    }

    fn peer(&self, request: &Parts) -> Option<IpAddr> {
        match &self.peer {
            Some(peer) => peer(request),
            None => request.extensions.get::<PeerAddr>().map(|peer| peer.0.ip()),
        }
    }

    fn warn_once_if_overlooked(&self, peer: IpAddr, lines: &Lines<'_>) {
        if self.warned.load(Ordering::Relaxed) || !self.addr.overlooks(peer, lines) {
            return;
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %peer,
                "a private peer that is not trusted sends forwarding headers: all clients behind it \
                 share one budget; if it is your proxy, add \
                 ClientKey::behind(TrustedProxies::parse([\"{peer}\"])?)"
            );
        }
    }
}

impl Default for ClientKey {
    fn default() -> ClientKey {
        ClientKey::new()
    }
}

impl From<ClientAddr> for ClientKey {
    fn from(addr: ClientAddr) -> ClientKey {
        ClientKey {
            addr,
            peer: None,
            header: None,
            query: None,
            warned: Arc::default(),
        }
    }
}

impl KeyExtractor for ClientKey {
    fn extract(&self, request: &Parts) -> Result<Key, NoKey> {
        if let Some(key) = self.explicit(request)? {
            return Ok(key);
        }
        let peer = self.peer(request);
        let lines = Lines(&request.headers);
        if let Some(peer) = peer {
            self.warn_once_if_overlooked(peer, &lines);
        }
        let client = self.addr.find(peer, &lines)?;
        Ok(Key::ip(client.addr()))
    }
}

fn valid(key: &ExplicitKey<'_>, is_valid: &Arc<Validator>) -> Result<Key, NoKey> {
    if !is_valid(key.as_str()) {
        return Err(NoKey::BadKey);
    }
    Ok(Key::explicit(key.as_str())?)
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKey")
            .field("addr", &self.addr)
            .field("header", &self.header.as_ref().map(|(name, _)| name))
            .field("query", &self.query.as_ref().map(|(name, _)| name))
            .finish_non_exhaustive()
    }
}

/// Headers as the search for the client reads them.
struct Lines<'m>(&'m HeaderMap);

impl HeaderLines for Lines<'_> {
    fn lines<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        // Most requests have none of them, which is seen faster than it is looked up.
        let named = self.0.keys().any(|key| key.as_str() == name);
        let lines = named.then(|| self.0.get_all(name));
        lines.into_iter().flatten().map(HeaderValue::as_bytes)
    }
}

/// A service of one connection, whose requests all carry its [`PeerAddr`].
///
/// For servers that do not say themselves who the peer is, such as hyper.
#[derive(Clone, Copy, Debug)]
pub struct WithPeer<S> {
    inner: S,
    peer: PeerAddr,
}

impl<S> WithPeer<S> {
    /// Serves the connection from `peer` with `inner`.
    pub const fn new(inner: S, peer: SocketAddr) -> WithPeer<S> {
        WithPeer {
            inner,
            peer: PeerAddr(peer),
        }
    }
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for WithPeer<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.extensions_mut().insert(self.peer);
        self.inner.call(request)
    }
}
