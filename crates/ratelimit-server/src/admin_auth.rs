//! Authorisation of admin calls: reset, refund, settle, explain and offenders.

use std::net::SocketAddr;

use axum::{extract::Request, http::StatusCode};

use crate::{
    api_error::ApiError,
    app::App,
    browser_guard::{check_host, check_site, is_direct},
    client::Peer,
    config::Rules,
};

/// Checks an admin call.
///
/// - The call must carry the admin token. With `--admin-without-token` it must come from this machine, with no
///   sign of a proxy. Otherwise admin calls are off.
/// - On every listener the call must name this server by an allowed host, and must not come from another site.
/// - Refused calls are logged.
pub(crate) fn admit_request(app: &App, rules: &Rules, request: &Request) -> Result<(), ApiError> {
    let admitted = admit(app, rules, request);
    if let Err(why) = &admitted {
        let (peer, headers) = (Peer::of(request.extensions()), request.headers());
        let refusals = app.refusals();
        refusals.log(request.uri().path(), peer, headers, why.detail());
    }
    admitted
}

fn admit(app: &App, rules: &Rules, request: &Request) -> Result<(), ApiError> {
    check_host(app, rules, request)?;
    check_site(request.headers())?;
    if let Some(token) = app.admin_token(rules) {
        return if token.is_in(request.headers()) {
            Ok(())
        } else {
            Err(ApiError::unauthorized())
        };
    }
    let is_local = |addr: SocketAddr| addr.ip().to_canonical().is_loopback();
    let is_local = Peer::of(request.extensions()).is_some_and(is_local);
    // A proxy on this machine is a loopback peer as well, and forwards calls of any client.
    if app.admits_without_token() && is_local && is_direct(rules, request.headers()) {
        return Ok(());
    }
    let detail = if app.admits_without_token() {
        "without a token it is for direct callers on the server's own machine"
    } else {
        "it needs an admin token (--admin-token-file), or --admin-without-token on a loopback address"
    };
    let status = StatusCode::FORBIDDEN;
    Err(ApiError::new(status, "This call is switched off", detail))
}
