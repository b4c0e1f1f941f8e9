//! Sessions of the page: signing in with the admin token, and out.
//!
//! A session lasts 30 minutes. Asking for it in its second half renews it, so a page that asks stays signed in, for at most
//! 12 hours.

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode, header::ORIGIN},
    routing::get,
};
use serde::{Deserialize, Serialize};

use crate::{
    admin_auth::{self, AdminAccess, Caller, attempt_key},
    api_error::ApiError,
    app::App,
    audit::Audit,
    browser_guard::{SEC_FETCH_SITE, check_own_origin, is_https},
    config::{AdminToken, ConsoleMode, ReloadableConfig},
    json_body::{parse, read},
    json_object::Object,
    json_response::json,
    session_cookie::{Session, SessionKey, deletions, unix_seconds, write_cookie},
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
    fn new(
        app: &App,
        rules: &ReloadableConfig,
        is_signed_in: bool,
        expires_at: Option<u64>,
    ) -> Self {
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
///
/// A wrong bearer token is an error here too: otherwise the answer would tell a right token from others without a trace.
async fn find(State(app): State<App>, request: Request) -> Result<Response<Body>, ApiError> {
    let rules = app.rules();
    let token = app.admin_token(&rules);
    let caller = match admin_auth::identify(&app, &rules, &request) {
        Ok(AdminAccess { caller, .. }) => Some(caller),
        Err(why) if token.is_some() && AdminToken::is_sent(request.headers()) => {
            return admin_auth::log_refused(&app, &request, Err(why));
        }
        Err(_) => None,
    };
    let token = token.filter(|_| caller == Some(Caller::Console));
    let session = token.and_then(|token| admin_auth::find_session(&rules, token, &request));
    let now = unix_seconds();
    let renewed = session.and_then(|session| session.renewed_at(now));
    let expires_at = renewed.or(session).map(|session| session.expiry);
    let answer = SessionResponse::new(&app, &rules, caller.is_some(), expires_at);
    let mut response = json(StatusCode::OK, &answer);
    if let (Some(token), Some(renewed)) = (token, renewed) {
        let cookie = SessionKey::of(token).cookie(renewed, now, is_https(&rules, &request));
        write_cookie(response.headers_mut(), cookie);
    }
    Ok(response)
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
    let now = unix_seconds();
    let session = Session::starting_at(now);
    let cookie = SessionKey::of(token).cookie(session, now, is_https);
    let answer = SessionResponse::new(&app, &rules, true, Some(session.expiry));
    let mut response = json(StatusCode::OK, &answer);
    write_cookie(response.headers_mut(), cookie);
    Ok(response)
}

/// Deletes the cookie. The server keeps no sessions, so a copy of the cookie stays valid, and can be renewed until 12 hours
/// after the sign-in.
async fn sign_out(State(app): State<App>, request: Request) -> Result<Response<Body>, ApiError> {
    let rules = app.rules();
    check_page(&rules, &request)?;
    let needs_token = app.admin_token(&rules).is_some();
    let is_signed_in = !needs_token && admin_auth::identify(&app, &rules, &request).is_ok();
    let session = SessionResponse::new(&app, &rules, is_signed_in, None);
    let mut response = json(StatusCode::OK, &session);
    for deletion in deletions() {
        write_cookie(response.headers_mut(), deletion);
    }
    Ok(response)
}

/// Refuses a browser that makes the call for a page of another origin. Programs send neither header.
fn check_page(rules: &ReloadableConfig, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    if headers.contains_key(SEC_FETCH_SITE) || headers.contains_key(ORIGIN) {
        check_own_origin(rules, request)?;
    }
    Ok(())
}
