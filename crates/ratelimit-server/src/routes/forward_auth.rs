//! Checks on behalf of a proxy: nginx `auth_request`, Traefik `ForwardAuth`, Caddy `forward_auth`.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};

use super::check;
use crate::{answer, app::App, query::Query, question::Question, refusal::Refusal};

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

fn denied_status(text: Option<&str>) -> Result<StatusCode, Refusal> {
    match text {
        None | Some("429") => Ok(StatusCode::TOO_MANY_REQUESTS),
        Some("403") => Ok(StatusCode::FORBIDDEN),
        Some("401") => Ok(StatusCode::UNAUTHORIZED),
        Some(_) => Err(Refusal::bad_request("denied must be 401, 403 or 429")),
    }
}
