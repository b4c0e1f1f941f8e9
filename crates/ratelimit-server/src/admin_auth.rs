//! Authorisation of admin calls: reset, refund, settle, explain and offenders.

use std::net::SocketAddr;

use axum::{
    extract::Request,
    http::{HeaderMap, StatusCode},
};
use ratelimit_http::client_ip::has_forwarding_headers;

use crate::{
    api_error::ApiError,
    app::App,
    client::{Lines, Peer},
    config::Rules,
};

/// Headers that proxies add besides the forwarding headers.
const PROXY_HEADERS: [&str; 3] = ["via", "x-forwarded-host", "x-forwarded-proto"];

/// Checks an admin call.
///
/// With an admin token, the call must carry it. Without one, the server must listen on a loopback address
/// and the call must come from there, with no sign of a proxy. Refused calls are logged.
pub(crate) fn admit_request(app: &App, rules: &Rules, request: &Request) -> Result<(), ApiError> {
    let peer = Peer::of(request.extensions());
    let admitted = admit(rules, app.listen(), peer, request.headers());
    if let Err(why) = &admitted {
        let refusals = app.refusals();
        refusals.log(request.uri().path(), peer, request.headers(), why.detail());
    }
    admitted
}

fn admit(
    rules: &Rules,
    listen: SocketAddr,
    peer: Option<SocketAddr>,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    if let Some(token) = &rules.admin {
        return if token.is_in(headers) {
            Ok(())
        } else {
            Err(ApiError::unauthorized())
        };
    }
    let is_local = |addr: SocketAddr| addr.ip().to_canonical().is_loopback();
    // A proxy on this machine is a loopback peer as well, and forwards calls of any client.
    let is_direct = !has_forwarding_headers(&Lines(headers))
        && !headers.contains_key(rules.chain_header.name())
        && !PROXY_HEADERS.iter().any(|name| headers.contains_key(*name));
    if is_local(listen) && peer.is_some_and(is_local) && is_direct {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "This call is switched off",
        "it needs an admin token (--admin-token-file), or a direct caller on the server's own loopback address",
    ))
}
