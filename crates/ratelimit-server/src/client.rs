//! The client of a request.

use std::net::SocketAddr;

use axum::http::{Extensions, HeaderMap, HeaderValue};
use ratelimit_core::Key;
use ratelimit_http::client_ip::{ClientIpSource, HeaderLines};

use crate::{api_error::ApiError, app::App, config::ReloadableConfig};

/// The remote address of the connection, an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

impl Peer {
    pub(crate) fn of(extensions: &Extensions) -> Option<SocketAddr> {
        extensions.get::<Peer>().map(|peer| peer.0)
    }
}

/// Marks, as an extension, a request that came over TLS to this server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverTls;

/// The key of the client's address, and its text in responses.
pub(crate) fn own_key(
    app: &App,
    rules: &ReloadableConfig,
    peer: Option<SocketAddr>,
    headers: &HeaderMap,
) -> Result<(Key, String), ApiError> {
    let lines = Lines(headers);
    let peer = peer.map(|peer| peer.ip());
    if let Some(peer) = peer
        && rules.client.looks_like_untrusted_proxy(peer, &lines)
        && app.warns_first_time()
    {
        tracing::warn!(
            %peer,
            "a private peer that is not trusted sends forwarding headers: all clients behind it \
             share one budget; if it is your proxy, add --trusted {peer}"
        );
    }
    let client = rules.client.resolve(peer, &lines);
    let client = client.map_err(|why| ApiError::bad_request(format!("{why}: name a key")))?;
    if let Some(peer) = peer
        && client.source() == ClientIpSource::Peer
        && rules.client.trusts(Some(peer))
        && app.warns_first_time_of_silent_proxy()
    {
        tracing::warn!(
            %peer,
            "a trusted proxy sends no forwarding header with an address: all clients behind it share one budget; \
             let it send the header, or name a key (calls of the proxy itself need neither)"
        );
    }
    let key = Key::network(client.addr(), client.prefix());
    let shown = key.to_string();
    Ok((key, shown))
}

/// Adapter from [`HeaderMap`] to the header lines that the client IP resolver reads.
pub(crate) struct Lines<'m>(pub(crate) &'m HeaderMap);

impl HeaderLines for Lines<'_> {
    fn lines<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.0.get_all(name).iter().map(HeaderValue::as_bytes)
    }
}
