//! Access to the console: its mode, the checks of every request, and the authorisation of its calls.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Response, header},
    middleware::Next,
};

use crate::{
    admin_auth::{self, Caller},
    api_error::ApiError,
    app::App,
    browser_guard::{check_host, check_own_site, is_page_visit},
    config::{ConsoleMode, ReloadableConfig},
};

/// The headers of every response below `/console`.
///
/// No text can become HTML in the page: `innerHTML` throws under `require-trusted-types-for`.
const SECURITY_HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), microphone=(), \
         midi=(), payment=(), usb=()",
    ),
];

/// Authorises the calls of the API but those of the session. Handlers find the [`Caller`] and the
/// [`AdminAccess`](admin_auth::AdminAccess) in the extensions.
pub(super) async fn authorize(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Result<Response<Body>, ApiError> {
    let admission = admin_auth::admit(&app, &app.rules(), &request)?;
    request.extensions_mut().insert(admission.caller);
    request.extensions_mut().insert(admission);
    Ok(next.run(request).await)
}

/// Checks a call of the API that changes something. It needs `--console write`, also with the token.
pub(super) fn admit_change(
    app: &App,
    rules: &ReloadableConfig,
    request: &Request,
) -> Result<Caller, ApiError> {
    let caller = admin_auth::admit_change(app, rules, request)?;
    if app.console_mode(rules) == ConsoleMode::Write {
        return Ok(caller);
    }
    let refused = Err(ApiError::read_only());
    admin_auth::log_refused(app, request, refused)
}

/// Hides the console where it is off, and refuses requests by other names and of other origins.
///
/// A link on another page may open the page itself.
pub(crate) fn check_request(
    app: &App,
    rules: &ReloadableConfig,
    request: &Request,
) -> Result<(), ApiError> {
    if app.console_mode(rules) == ConsoleMode::Off {
        return Err(ApiError::not_found());
    }
    check_host(app, rules, request)?;
    if !is_page_visit(request) {
        check_own_site(request.headers())?;
    }
    Ok(())
}

/// Adds the headers to every response below `/console`, errors included.
pub(crate) fn write_headers(headers: &mut HeaderMap) {
    let security = SECURITY_HEADERS.into_iter();
    headers.extend(security.map(|(name, value)| (name, HeaderValue::from_static(value))));
}

/// Whether a request is one of the console.
pub(crate) fn is_below_console(request: &Request) -> bool {
    let below = request.uri().path().strip_prefix("/console");
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
