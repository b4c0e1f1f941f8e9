//! Who is asking.

use std::net::SocketAddr;

use axum::http::{Extensions, HeaderMap, HeaderValue};
use ratelimit_core::Key;
use ratelimit_http::client_ip::HeaderLines;

use crate::{api_error::ApiError, app::App, config::Rules};

/// The address at the other end of a request's connection, in the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

impl Peer {
    pub(crate) fn of(extensions: &Extensions) -> Option<SocketAddr> {
        extensions.get::<Peer>().map(|peer| peer.0)
    }
}

/// The caller's own key, and how it is shown.
pub(crate) fn own_key(
    app: &App,
    rules: &Rules,
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
    let key = Key::network(client.addr(), client.prefix());
    Ok((key, client.to_string()))
}

/// Headers as the search for the client reads them.
pub(crate) struct Lines<'m>(pub(crate) &'m HeaderMap);

impl HeaderLines for Lines<'_> {
    fn lines<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.0.get_all(name).iter().map(HeaderValue::as_bytes)
    }
}
