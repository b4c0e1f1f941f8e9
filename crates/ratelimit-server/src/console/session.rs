//! Sessions of the page: signing in with the admin token, and out.
//!
//! A session lasts 30 minutes. Asking for it in its second half renews it, so a page that asks stays signed in.

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode, header::ORIGIN},
    routing::get,
};
use ratelimit_core::Key;
use serde::{Deserialize, Serialize};

use crate::{
    admin_auth::{self, Caller},
    api_error::ApiError,
    app::App,
    audit::Audit,
    browser_guard::{SEC_FETCH_SITE, check_own_origin, is_https},
    client::{Lines, Peer},
    config::{ConsoleMode, Rules},
    json_body::{parse, read},
    json_object::Object,
    json_response::json,
    session_cookie::{SESSION_DURATION, SessionKey, deletions, unix_seconds, write_cookie},
};

/// Body of a sign-in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignInRequest {
    token: String,
}

/// The session of the caller, and the rights that the page has in it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionResponse {
    signed_in: bool,
    /// Unix seconds; `None` if the caller is signed in without a cookie, or not at all.
    expires_at: Option<u64>,
    mode: &'static str,
    can: &'static [&'static str],
    /// How offenders are shown.
    keys: &'static str,
}

impl SessionResponse {
    fn new(app: &App, rules: &Rules, is_signed_in: bool, expires_at: Option<u64>) -> Self {
        let can_change = app.console_mode(rules) == ConsoleMode::Write;
        SessionResponse {
            signed_in: is_signed_in,
            expires_at,
            mode: if can_change { "write" } else { "read" },
            can: match (is_signed_in, can_change) {
                (false, _) => &[],
                (true, false) => &["look"],
                (true, true) => &["look", "reset", "reload"],
            },
            keys: if app.shows_offender_keys() {
                "shown"
            } else {
                "digest"
            },
        }
    }
}

pub(super) fn routes() -> Router<App> {
    let session = get(find).post(sign_in).delete(sign_out);
    Router::new().route("/console/api/session", session)
}

/// The session of the caller. It is renewed if less than half of its time remains.
async fn find(State(app): State<App>, request: Request) -> Response<Body> {
    let rules = app.rules();
    let caller = admin_auth::identify(&app, &rules, &request).ok();
    let now = unix_seconds();
    let key = app.admin_token(&rules).map(SessionKey::of);
    let key = key.filter(|_| caller == Some(Caller::Console));
    let expiry = key
        .as_ref()
        .and_then(|key| key.expiry_in(request.headers(), now));
    let renewed = match (&key, expiry) {
        (Some(key), Some(expiry)) if is_due(expiry, now) => {
            Some(key.cookie(now, is_https(&rules, &request)))
        }
        _ => None,
    };
    let expires_at = renewed.as_ref().map(|(_, expiry)| *expiry).or(expiry);
    let session = SessionResponse::new(&app, &rules, caller.is_some(), expires_at);
    let mut response = json(StatusCode::OK, &session);
    if let Some((cookie, _)) = renewed {
        write_cookie(response.headers_mut(), cookie);
    }
    response
}

const fn is_due(expiry: u64, now: u64) -> bool {
    expiry.saturating_sub(now) < SESSION_DURATION.as_secs() / 2
}

/// Signs in with the admin token. Where none is needed, callers that may make admin calls are signed in already.
async fn sign_in(State(app): State<App>, request: Request) -> Result<Response<Body>, ApiError> {
    let rules = app.rules();
    check_page(&rules, &request)?;
    let (parts, body) = request.into_parts();
    let bytes = read(&app, &parts.headers, body).await?;
    let Object(sent): Object<SignInRequest> = parse(&bytes)?;
    let request = Request::from_parts(parts, Body::empty());
    let Some(token) = app.admin_token(&rules) else {
        let caller = admin_auth::admit_request(&app, &rules, &request);
        let session = SessionResponse::new(&app, &rules, caller.is_ok(), None);
        return caller.map(|_| json(StatusCode::OK, &session));
    };
    let address = attempt_key(&rules, &request);
    let attempt = app.sign_ins().attempt(&address, || token.is(&sent.token));
    let admitted = attempt.await.and_then(|is_right| {
        let wrong = || ApiError::wrong_token();
        is_right.then_some(()).ok_or_else(wrong)
    });
    admin_auth::log_refused(&app, &request, admitted)?;
    Audit::new("sign-in", Caller::Console, &request).succeed();
    let is_https = is_https(&rules, &request);
    let (cookie, expiry) = SessionKey::of(token).cookie(unix_seconds(), is_https);
    let session = SessionResponse::new(&app, &rules, true, Some(expiry));
    let mut response = json(StatusCode::OK, &session);
    write_cookie(response.headers_mut(), cookie);
    Ok(response)
}

/// Deletes the cookie. The server keeps no sessions, so a copy of the cookie stays valid until it expires.
async fn sign_out(State(app): State<App>, request: Request) -> Result<Response<Body>, ApiError> {
    let rules = app.rules();
    check_page(&rules, &request)?;
    let needs_token = app.admin_token(&rules).is_some();
    let is_signed_in = !needs_token && admin_auth::identify(&app, &rules, &request).is_ok();
    let session = SessionResponse::new(&app, &rules, is_signed_in, None);
    let mut response = json(StatusCode::OK, &session);
    for deletion in deletions(is_https(&rules, &request)) {
        write_cookie(response.headers_mut(), deletion);
    }
    Ok(response)
}

/// Refuses a browser that makes the call for a page of another origin. Programs send neither header.
fn check_page(rules: &Rules, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    if headers.contains_key(SEC_FETCH_SITE) || headers.contains_key(ORIGIN) {
        check_own_origin(rules, request)?;
    }
    Ok(())
}

/// The key that attempts are counted by: the client's address, or the peer's if a trusted proxy names none.
fn attempt_key(rules: &Rules, request: &Request) -> Key {
    let peer = Peer::of(request.extensions()).map(|peer| peer.ip());
    match (rules.client.resolve(peer, &Lines(request.headers())), peer) {
        (Ok(client), _) => Key::network(client.addr(), client.prefix()),
        (Err(_), Some(peer)) => Key::ip(peer),
        (Err(_), None) => Key::new("no address").expect("a text is a key"),
    }
}
