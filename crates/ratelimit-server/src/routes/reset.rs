//! `reset`: restores the full budget of a key.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use serde::Serialize;

use crate::{
    admin_auth, api_error::ApiError, app::App, audit::Audit, check_request::CheckRequest,
    json_response::json,
};

/// The response when every store has reset the key.
#[derive(Serialize)]
struct ResetResponse<'a> {
    /// Absent if the call named keys of limits `by NAME` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
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
    let reset = app.limiter().reset_keys(policy, keys).await;
    reset.map_err(|_| ApiError::reset_locally())?;
    audit.succeed();
    let response = ResetResponse {
        key: (!shown.is_empty()).then_some(shown),
        algorithm: policy.limits()[0].algorithm().wire_name(),
        reset: true,
    };
    Ok(json(StatusCode::OK, &response))
}
