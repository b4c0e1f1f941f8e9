//! Authorisation of admin calls: reset, refund, settle, explain, offenders and the calls of the console.

use axum::{
    extract::Request,
    http::{StatusCode, header::ORIGIN},
};

use crate::{
    api_error::ApiError,
    app::App,
    browser_guard::{SEC_FETCH_SITE, check_host, check_own_origin, check_own_site, is_direct},
    client::Peer,
    config::{ConsoleMode, Rules},
};

/// The caller of an admitted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A program with the admin token.
    Token,
    /// The page of the console: with the cookie of a session or, where no token is needed, in a browser.
    Console,
    /// A program on this machine, where no token is needed.
    Local,
}

impl Caller {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Caller::Token => "token",
            Caller::Console => "console",
            Caller::Local => "local",
        }
    }
}

/// Checks an admin call that changes nothing.
///
/// - The call must carry the admin token, or the cookie of a session of the console. With `--admin-without-token` it
///   must come from this machine, with no sign of a proxy. Otherwise admin calls are off.
/// - On every listener the call must name this server by an allowed host, and must not come from another site.
/// - Refused calls are logged.
pub(crate) fn admit_request(
    app: &App,
    rules: &Rules,
    request: &Request,
) -> Result<Caller, ApiError> {
    let admitted = identify(app, rules, request);
    log_refused(app, request, admitted)
}

/// Checks an admin call that changes something. The page of the console needs `--console write` for it.
pub(crate) fn admit_change(
    app: &App,
    rules: &Rules,
    request: &Request,
) -> Result<Caller, ApiError> {
    let admitted = identify(app, rules, request).and_then(|caller| {
        let can_change = app.console_mode(rules) == ConsoleMode::Write;
        if caller == Caller::Console && !can_change {
            return Err(ApiError::read_only());
        }
        Ok(caller)
    });
    log_refused(app, request, admitted)
}

/// Logs the refusal of an admin call.
pub(crate) fn log_refused<T>(
    app: &App,
    request: &Request,
    admitted: Result<T, ApiError>,
) -> Result<T, ApiError> {
    if let Err(why) = &admitted {
        let (peer, headers) = (Peer::of(request.extensions()), request.headers());
        let refusals = app.refusals();
        refusals.log(request.uri().path(), peer, headers, why.detail());
    }
    admitted
}

/// Finds the caller. A refusal is not logged.
pub(crate) fn identify(app: &App, rules: &Rules, request: &Request) -> Result<Caller, ApiError> {
    check_host(app, rules, request)?;
    check_own_site(request.headers())?;
    let Some(token) = app.admin_token(rules) else {
        return identify_local(app, rules, request);
    };
    if token.is_in(request.headers()) {
        return Ok(Caller::Token);
    }
    #[cfg(feature = "console")]
    if app.console_mode(rules) != ConsoleMode::Off
        && crate::session_cookie::SessionKey::of(token).is_in(request.headers())
    {
        check_own_origin(rules, request)?;
        return Ok(Caller::Console);
    }
    Err(ApiError::unauthorized())
}

/// Finds the caller where there is no token.
fn identify_local(app: &App, rules: &Rules, request: &Request) -> Result<Caller, ApiError> {
    let headers = request.headers();
    let is_local =
        Peer::of(request.extensions()).is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    // A proxy on this machine is a loopback peer as well, and forwards calls of any client.
    if app.admits_without_token() && is_local && is_direct(rules, headers) {
        // The page has no cookie here, but browsers add one of these headers to its calls.
        if headers.contains_key(SEC_FETCH_SITE) || headers.contains_key(ORIGIN) {
            check_own_origin(rules, request)?;
            return Ok(Caller::Console);
        }
        return Ok(Caller::Local);
    }
    let detail = if app.admits_without_token() {
        "without a token it is for direct callers on the server's own machine"
    } else {
        "it needs an admin token (--admin-token-file), or --admin-without-token on a loopback address"
    };
    let status = StatusCode::FORBIDDEN;
    Err(ApiError::new(status, "This call is switched off", detail))
}
