//! Authorisation of admin calls: reset, refund, settle, explain, offenders and the calls of the console.

use axum::{
    extract::Request,
    http::{StatusCode, Version, header::ORIGIN},
};
use ratelimit_core::Key;

use crate::{
    api_error::ApiError,
    app::App,
    browser_guard::{
        SEC_FETCH_SITE, check_host, check_own_origin, check_own_site, is_below_localhost, is_direct,
    },
    client::{Lines, Peer},
    config::{AdminToken, ConsoleMode, ReloadableConfig},
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

/// An admitted call.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(feature = "console"),
    allow(dead_code, reason = "only the console keeps a call for long")
)]
pub(crate) struct AdminAccess {
    pub(crate) caller: Caller,
    /// The end of the caller's session in Unix seconds; `None` without a cookie.
    pub(crate) expiry: Option<u64>,
    /// Tells the admin token at that moment from others; `None` if there is none.
    pub(crate) token_id: Option<[u8; 32]>,
}

/// Checks an admin call that changes nothing.
///
/// - The call must carry the admin token, or the cookie of a session of the console. With `--admin-without-token` it
///   must come from this machine, with no sign of a proxy. Otherwise admin calls are off.
/// - A wrong bearer token counts against the limit of its address.
/// - On every listener the call must name this server by an allowed host, and must not come from another site.
/// - Refused calls are logged.
pub(crate) fn admit_request(
    app: &App,
    rules: &ReloadableConfig,
    request: &Request,
) -> Result<Caller, ApiError> {
    admit(app, rules, request).map(|admission| admission.caller)
}

/// The same with all that is known of the caller.
pub(crate) fn admit(
    app: &App,
    rules: &ReloadableConfig,
    request: &Request,
) -> Result<AdminAccess, ApiError> {
    let admitted = identify(app, rules, request);
    log_refused(app, request, admitted)
}

/// Checks an admin call that changes something. The page of the console needs `--console write` for it.
pub(crate) fn admit_change(
    app: &App,
    rules: &ReloadableConfig,
    request: &Request,
) -> Result<Caller, ApiError> {
    let admitted = identify(app, rules, request).and_then(|AdminAccess { caller, .. }| {
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

/// Finds the caller. A wrong bearer token is charged; a refusal is not logged.
pub(crate) fn identify(
    app: &App,
    rules: &ReloadableConfig,
    request: &Request,
) -> Result<AdminAccess, ApiError> {
    check_host(app, rules, request)?;
    check_own_site(request.headers())?;
    let Some(token) = app.admin_token(rules) else {
        let caller = identify_local(app, rules, request)?;
        return Ok(AdminAccess {
            caller,
            expiry: None,
            token_id: None,
        });
    };
    let token_id = Some(token_id(token));
    if token.is_in(request.headers()) {
        return Ok(AdminAccess {
            caller: Caller::Token,
            expiry: None,
            token_id,
        });
    }
    // A browser sends the cookie beside an `Authorization` that is for a proxy.
    #[cfg(feature = "console")]
    if app.console_mode(rules) != ConsoleMode::Off
        && let Some(session) = find_session(rules, token, request)
    {
        check_own_origin(rules, request)?;
        return Ok(AdminAccess {
            caller: Caller::Console,
            expiry: Some(session.expiry),
            token_id,
        });
    }
    if AdminToken::is_sent(request.headers()) {
        let address = attempt_key(rules, request);
        return Err(app.sign_ins().charge_wrong(&address));
    }
    Err(ApiError::unauthorized())
}

/// The session of the request's cookie.
#[cfg(feature = "console")]
pub(crate) fn find_session(
    rules: &ReloadableConfig,
    token: &AdminToken,
    request: &Request,
) -> Option<crate::session_cookie::Session> {
    use crate::session_cookie::{SessionKey, unix_seconds};
    let is_https = crate::browser_guard::is_https(rules, request);
    SessionKey::of(token).find(request.headers(), is_https, unix_seconds())
}

/// Tells one admin token from another.
pub(crate) fn token_id(token: &AdminToken) -> [u8; 32] {
    token.derive(b"console live")
}

/// The key that wrong tokens are counted by: the client's address, or the peer's if a trusted proxy names none.
pub(crate) fn attempt_key(rules: &ReloadableConfig, request: &Request) -> Key {
    let peer = Peer::of(request.extensions()).map(|peer| peer.ip());
    match (rules.client.resolve(peer, &Lines(request.headers())), peer) {
        (Ok(client), _) => Key::network(client.addr(), client.prefix()),
        (Err(_), Some(peer)) => Key::ip(peer),
        (Err(_), None) => Key::new("no address").expect("a text is a key"),
    }
}

/// Finds the caller where there is no token.
fn identify_local(
    app: &App,
    rules: &ReloadableConfig,
    request: &Request,
) -> Result<Caller, ApiError> {
    let headers = request.headers();
    let is_local =
        Peer::of(request.extensions()).is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    // A proxy on this machine is a loopback peer as well, and forwards calls of any client. Some proxies add no header, as
    // nginx by default, but speak HTTP/1.0.
    let is_direct = is_direct(rules, headers) && request.version() >= Version::HTTP_11;
    if app.admits_without_token() && is_local && is_direct && !is_below_localhost(request) {
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
