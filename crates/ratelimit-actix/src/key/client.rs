//! The client: a key that was named, or the address it comes from.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use actix_web::{
    HttpMessage as _, HttpRequest,
    http::header::{HeaderMap, HeaderValue},
};
use ratelimit_core::{ClientAddr, ExplicitKey, HeaderLines, Key, TrustedProxies};

use super::{KeyExtractor, NoKey};

/// The client of a request.
///
/// In this order:
///
/// 1. The [`Key`] that the application put into the request's extensions, then a header or query
///    parameter that it opted into and that passes its validator.
/// 2. The address that trusted proxies tell, by the rules of [`ClientAddr`].
/// 3. The peer's address. There is no key without one.
///
/// ```
/// use actix_web::test::TestRequest;
/// use ratelimit_actix::{ClientKey, KeyExtractor, TrustedProxies};
///
/// let key = ClientKey::behind(TrustedProxies::parse(["10.0.0.0/8"])?);
/// let request = TestRequest::get()
///     .peer_addr("10.0.0.1:4711".parse()?)
///     .insert_header(("x-forwarded-for", "6.6.6.6, 203.0.113.7"))
///     .to_http_request();
/// assert_eq!(key.extract(&request)?.as_str(), "ip:203.0.113.7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClientKey {
    addr: ClientAddr,
    header: Option<(Box<str>, Arc<Validator>)>,
    query: Option<(Box<str>, Arc<Validator>)>,
    warned: Arc<AtomicBool>,
}

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

    /// Takes a key from the header `name` if it passes `is_valid`; else the answer is 400.
    ///
    /// A client that can name its own key can escape its limit: let only keys pass that are known.
    #[must_use]
    pub fn explicit_header(
        mut self,
        name: &str,
        is_valid: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> ClientKey {
        self.header = Some((name.to_ascii_lowercase().into(), Arc::new(is_valid)));
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

    fn explicit(&self, request: &HttpRequest) -> Result<Option<Key>, NoKey> {
        if let Some(key) = request.extensions().get::<Key>() {
            return Ok(Some(key.clone()));
        }
        if let Some((name, is_valid)) = &self.header {
            let lines = Lines(request.headers());
            if let Some(key) = ExplicitKey::from_header(&lines, name)? {
                return valid(&key, is_valid).map(Some);
            }
        }
        if let Some((name, is_valid)) = &self.query {
            let query = request.query_string();
            if let Some(key) = ExplicitKey::from_query(query.as_bytes(), name)? {
                return valid(&key, is_valid).map(Some);
            }
        }
        Ok(None)
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
            header: None,
            query: None,
            warned: Arc::default(),
        }
    }
}

impl KeyExtractor for ClientKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey> {
        if let Some(key) = self.explicit(request)? {
            return Ok(key);
        }
        let peer = request.peer_addr().map(|peer| peer.ip());
        let lines = Lines(request.headers());
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
        self.0.get_all(name).map(HeaderValue::as_bytes)
    }
}
