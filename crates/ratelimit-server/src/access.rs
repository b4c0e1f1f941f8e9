//! Who may reset, refund, explain and see offenders.

use std::{fmt, net::SocketAddr, path::Path};

use axum::{
    extract::Request,
    http::{HeaderMap, StatusCode, header::AUTHORIZATION},
};
use ratelimit_http::client_ip::has_forwarding_headers;
use subtle::ConstantTimeEq as _;

use crate::{
    app::App,
    caller::{Lines, Peer},
    config::{InvalidConfig, Rules},
    hmac::hmac_sha256,
    refusal::Refusal,
};

const SHORTEST_TOKEN: usize = 16;

/// What proxies add besides the client's address.
const PROXY_HEADERS: [&str; 3] = ["via", "x-forwarded-host", "x-forwarded-proto"];

/// The token that admin calls must carry.
#[derive(Clone)]
pub(crate) struct AdminToken(Box<[u8]>);

impl AdminToken {
    /// Reads the token from a file, without the white space around it.
    pub(crate) fn read(path: &Path) -> Result<AdminToken, InvalidConfig> {
        let bytes = std::fs::read(path).map_err(|source| InvalidConfig::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let token = bytes.trim_ascii();
        if token.len() < SHORTEST_TOKEN || !token.iter().all(u8::is_ascii_graphic) {
            return Err(InvalidConfig::Token {
                path: path.to_owned(),
            });
        }
        Ok(AdminToken(token.into()))
    }

    /// A secret for one purpose, which does not tell the token.
    pub(crate) fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        hmac_sha256(&self.0, purpose)
    }

    fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (lines.next(), lines.next()) else {
            return false;
        };
        let Some((scheme, token)) = value.as_bytes().split_at_checked(7) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(self.0.ct_eq(token.trim_ascii()))
    }
}

#[cfg(test)]
impl From<&str> for AdminToken {
    fn from(token: &str) -> AdminToken {
        AdminToken(token.as_bytes().into())
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken")
    }
}

/// Lets an admin call pass: with the token where there is one, else only straight from this machine.
pub(crate) fn admit_request(app: &App, rules: &Rules, request: &Request) -> Result<(), Refusal> {
    let peer = Peer::of(request.extensions());
    admit(rules, app.listen(), peer, request.headers())
}

fn admit(
    rules: &Rules,
    listen: SocketAddr,
    peer: Option<SocketAddr>,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    if let Some(token) = &rules.admin {
        return if token.is_in(headers) {
            Ok(())
        } else {
            Err(Refusal::unauthorized())
        };
    }
    let is_local = |addr: SocketAddr| addr.ip().to_canonical().is_loopback();
    // A proxy on this machine is a loopback peer too, and speaks for anybody.
    let is_direct = !has_forwarding_headers(&Lines(headers))
        && !headers.contains_key(rules.chain_header.name())
        && !PROXY_HEADERS.iter().any(|name| headers.contains_key(*name));
    if is_local(listen) && peer.is_some_and(is_local) && is_direct {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::FORBIDDEN,
        "This call is switched off",
        "it needs an admin token (--admin-token-file), or a direct caller on the server's own loopback address",
    ))
}
