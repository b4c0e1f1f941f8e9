//! Checks on behalf of a proxy: nginx `auth_request`, Traefik `ForwardAuth`, Caddy `forward_auth`.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode, request::Parts},
};
use ratelimit_http::policy::{BlockStatus, RuleOutcome, RuleRequest};

use super::check;
use crate::{
    api_error::ApiError,
    app::App,
    check_request::CheckRequest,
    check_response,
    client::{Lines, Peer},
    config::Rules,
    query::Query,
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
    let denied = Query(parts.uri.query().unwrap_or_default()).one("denied")?;
    let denied = denied_status(denied.as_deref())?;
    let check_request = CheckRequest::from_query(&app, &rules, &parts)?;
    match evaluate_rules(&rules, &check_request, &parts) {
        RuleOutcome::Blocked(BlockStatus::TooManyRequests) => return Ok(status_only(denied)),
        RuleOutcome::Blocked(how) => {
            let status = StatusCode::from_u16(how.status());
            return Ok(status_only(status.unwrap_or(StatusCode::FORBIDDEN)));
        }
        RuleOutcome::Exempt => return Ok(status_only(StatusCode::OK)),
        RuleOutcome::Limited => {}
    }
    let verdict = check::check(&app, &rules, &check_request).await;
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
fn evaluate_rules(rules: &Rules, check_request: &CheckRequest, parts: &Parts) -> RuleOutcome {
    let headers = Lines(&parts.headers);
    let peer = Peer::of(&parts.extensions).map(|peer| peer.ip());
    let client = rules.client.resolve(peer, &headers).ok();
    let mut facts = RuleRequest::new(&check_request.key, path_of(parts), &headers);
    facts.address = client.map(|client| client.addr());
    let policy = rules.policies.http(check_request.policy.name());
    policy.map_or(RuleOutcome::Limited, |policy| policy.evaluate(&facts))
}

/// The path of the original request, from the headers of the proxy.
fn path_of(parts: &Parts) -> &str {
    let header = |name: &str| parts.headers.get(name)?.to_str().ok();
    let uri = header("x-forwarded-uri").or_else(|| header("x-original-uri"));
    let path = uri.and_then(|uri| uri.split('?').next());
    path.unwrap_or_default()
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
