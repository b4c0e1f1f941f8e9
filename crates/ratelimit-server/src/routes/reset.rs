//! `reset`: restores the full budget of a key.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use ratelimit_core::{LimitDecision, Verdict};
use serde::Serialize;

use crate::{
    admin_auth, api_error::ApiError, app::App, audit::Audit, check_request::CheckRequest,
    json_response::json,
};

/// The response when every store has reset the key.
///
/// `reset` is false if no limit of the key had anything to restore: nothing was stored for it, as for a misspelt key.
#[derive(Serialize)]
struct ResetResponse<'a> {
    /// Absent if the call named keys of limits `by NAME` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    policy: &'a str,
    algorithm: &'static str,
    reset: bool,
}

pub(super) async fn delete(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let rules = app.rules();
    let caller = admin_auth::admit_change(&app, &rules, &request)?;
    let mut audit = Audit::new("reset", caller, &request);
    let (parts, _) = request.into_parts();
    let check_request = CheckRequest::partial(&app, &rules, &parts)?;
    let CheckRequest {
        policy,
        keys,
        shown,
        ..
    } = &check_request;
    audit.about(policy, keys);
    let before = app.limiter().check_hit(check_request.hit().dry_run()).await;
    let reset = app.limiter().reset_keys(policy, keys).await;
    reset.map_err(|_| ApiError::reset_locally())?;
    audit.succeed();
    let response = ResetResponse {
        key: (!shown.is_empty()).then_some(shown),
        policy: policy.name(),
        algorithm: policy.limits()[0].algorithm().wire_name(),
        reset: has_spent(&before),
    };
    Ok(json(StatusCode::OK, &response))
}

/// Whether a limit has less than its capacity left, or denies. Without an answer of the store that is not known.
fn has_spent(verdict: &Verdict) -> bool {
    let Verdict::Checked(decision) = verdict else {
        return true;
    };
    let has_spent =
        |limit: LimitDecision| limit.remaining < limit.limit || !limit.reset_after.is_zero();
    decision.limits().any(has_spent)
}
