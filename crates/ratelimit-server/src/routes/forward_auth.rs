//! Checks on behalf of a proxy: nginx `auth_request`, Traefik `ForwardAuth`, Caddy `forward_auth`.

use std::borrow::Cow;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderName, Response, StatusCode, request::Parts},
};
use ratelimit_http::policy::{BlockStatus, RuleOutcome, RuleRequest};

use super::check;
use crate::{
    api_error::ApiError,
    app::App,
    check_request::CheckRequest,
    check_response,
    client::{Lines, Peer},
    config::ReloadableConfig,
    query::Query,
    refusal_log::BadCall,
};

/// Charges the budget and responds with a status only: 200, or a denial.
///
/// The parameter `denied` sets the status of a denial, because nginx accepts only 401 and 403.
pub(super) async fn any(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let (parts, _) = request.into_parts();
    let rules = app.rules();
    let denied = Query::of(&parts).one("denied")?;
    let denied = denied_status(denied.as_deref()).map_err(|why| app.bad_parameter(&parts, &why))?;
    let check_request = CheckRequest::forwarded(&app, &rules, &parts)?;
    match evaluate_rules(&app, &rules, &check_request, &parts)? {
        RuleOutcome::Blocked(BlockStatus::TooManyRequests) => return Ok(status_only(denied)),
        RuleOutcome::Blocked(how) => {
            let status = StatusCode::from_u16(how.status());
            return Ok(status_only(status.unwrap_or(StatusCode::FORBIDDEN)));
        }
        RuleOutcome::Exempt => return Ok(status_only(StatusCode::OK)),
        // `Limited`: the limits decide.
        _ => {}
    }
    let verdict = check::check(&app, &check_request).await;
    let status = match check_response::status(&verdict) {
        StatusCode::TOO_MANY_REQUESTS => denied,
        other => other,
    };
    Ok(check_response::respond(
        app.headers(),
        &check_request.policy,
        &verdict,
        status,
        Body::empty(),
    ))
}

/// Evaluates the rules of the policy on the request that the proxy forwards.
fn evaluate_rules(
    app: &App,
    rules: &ReloadableConfig,
    check_request: &CheckRequest,
    parts: &Parts,
) -> Result<RuleOutcome, ApiError> {
    let policy = rules.policies.http(check_request.policy.name());
    let Some(policy) = policy.filter(|policy| policy.has_rules()) else {
        return Ok(RuleOutcome::Limited);
    };
    let headers = Lines(&parts.headers);
    let peer = Peer::of(&parts.extensions).map(|peer| peer.ip());
    let path = match &rules.path_header {
        Some(name) if policy.has_path_rules() => {
            let path = rules.client.trusts(peer).then(|| path_in(name, parts));
            let no_path = || {
                let why = no_path(policy.name(), name);
                app.refuse_call(BadCall::NoPath, parts, why)
            };
            path.flatten().ok_or_else(no_path)?
        }
        _ => Cow::Borrowed(""),
    };
    let client = rules.client.resolve(peer, &headers).ok();
    let mut facts = RuleRequest::new(check_request.key(), &path, &headers);
    facts.address = client.map(|client| client.whole_addr());
    Ok(policy.evaluate(&facts))
}

/// The path in the one line of the header `name`: the value up to its query, without scheme and host.
///
/// The value may be any bytes: nginx sends the path as the client did. Bytes that are not UTF-8 are replaced, as those
/// of escapes are when rules compare the path. A `#` is not cut off: nginx passes it to its backend, and not every
/// backend reads it as the end of the path.
fn path_in<'p>(name: &HeaderName, parts: &'p Parts) -> Option<Cow<'p, str>> {
    let mut lines = parts.headers.get_all(name).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let uri = line.as_bytes();
    let end = uri.iter().position(|byte| *byte == b'?');
    let uri = &uri[..end.unwrap_or(uri.len())];
    if uri.starts_with(b"/") {
        return Some(String::from_utf8_lossy(uri));
    }
    let scheme = uri.windows(3).position(|part| part == b"://")?;
    let after_scheme = &uri[scheme + 3..];
    let path = after_scheme
        .iter()
        .position(|byte| matches!(byte, b'/' | b'\\' | b'#'));
    Some(path.map_or("/".into(), |path| {
        String::from_utf8_lossy(&after_scheme[path..])
    }))
}

/// Without the path, a blocked path would pass.
fn no_path(policy: &str, name: &HeaderName) -> String {
    format!(
        "policy {policy} has rules about paths: a trusted proxy must send the path in one line of {name}"
    )
}

/// A response without a body.
fn status_only(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn denied_status(text: Option<&str>) -> Result<StatusCode, ApiError> {
    match text {
        None | Some("429") => Ok(StatusCode::TOO_MANY_REQUESTS),
        Some("403") => Ok(StatusCode::FORBIDDEN),
        Some("401") => Ok(StatusCode::UNAUTHORIZED),
        Some(_) => Err(ApiError::bad_request("denied must be 401, 403 or 429")),
    }
}
