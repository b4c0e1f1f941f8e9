//! Checks on behalf of a proxy: nginx `auth_request`, Traefik `ForwardAuth`, Caddy `forward_auth`.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode, request::Parts},
};
use ratelimit_http::policy::{BlockStatus, RuleOutcome, RuleRequest};

use super::check;
use crate::{
    answer,
    app::App,
    caller::{Lines, Peer},
    config::Rules,
    query::Query,
    question::Question,
    refusal::Refusal,
};

/// Spends, and answers by the status alone: 200, or what the proxy takes for a denial.
///
/// nginx understands only 401 and 403, so `denied` chooses the status.
pub(super) async fn any(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let (parts, _) = request.into_parts();
    let rules = app.rules();
    let denied = Query(parts.uri.query().unwrap_or_default()).one("denied")?;
    let denied = denied_status(denied.as_deref())?;
    let question = Question::from_query(&app, &rules, &parts)?;
    match judged(&rules, &question, &parts) {
        RuleOutcome::Blocked(BlockStatus::TooManyRequests) => return Ok(only(denied)),
        RuleOutcome::Blocked(how) => {
            let status = StatusCode::from_u16(how.status());
            return Ok(only(status.unwrap_or(StatusCode::FORBIDDEN)));
        }
        RuleOutcome::Exempt => return Ok(only(StatusCode::OK)),
        RuleOutcome::Limited => {}
    }
    let verdict = check::spend(&app, &rules, &question).await;
    let status = match answer::status(&verdict) {
        StatusCode::TOO_MANY_REQUESTS => denied,
        other => other,
    };
    Ok(answer::respond(
        app.headers(),
        &question.policy,
        &verdict,
        status,
        Body::empty(),
    ))
}

/// What the rules of the policy say of the request that the proxy asks for.
fn judged(rules: &Rules, question: &Question, parts: &Parts) -> RuleOutcome {
    let headers = Lines(&parts.headers);
    let peer = Peer::of(&parts.extensions).map(|peer| peer.ip());
    let client = rules.client.resolve(peer, &headers).ok();
    let mut facts = RuleRequest::new(&question.key, path_of(parts), &headers);
    facts.address = client.map(|client| client.addr());
    let policy = rules.policies.http(question.policy.name());
    policy.map_or(RuleOutcome::Limited, |policy| policy.evaluate(&facts))
}

/// The path that the client asked for, as proxies tell it.
fn path_of(parts: &Parts) -> &str {
    let told = |name: &str| parts.headers.get(name)?.to_str().ok();
    let uri = told("x-forwarded-uri").or_else(|| told("x-original-uri"));
    let path = uri.and_then(|uri| uri.split('?').next());
    path.unwrap_or_default()
}

/// An answer that says nothing but its status.
fn only(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn denied_status(text: Option<&str>) -> Result<StatusCode, Refusal> {
    match text {
        None | Some("429") => Ok(StatusCode::TOO_MANY_REQUESTS),
        Some("403") => Ok(StatusCode::FORBIDDEN),
        Some("401") => Ok(StatusCode::UNAUTHORIZED),
        Some(_) => Err(Refusal::bad_request("denied must be 401, 403 or 429")),
    }
}
