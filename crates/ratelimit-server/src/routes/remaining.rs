//! `remaining`: the budget of a key, without a charge.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};

use crate::{
    api_error::ApiError,
    app::App,
    check_request::CheckRequest,
    check_response::{self, CheckResponse},
    json_response::to_json,
};

pub(super) async fn get(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let (parts, _) = request.into_parts();
    let rules = app.rules();
    let check_request = CheckRequest::from_query(&app, &rules, &parts, &[])?;
    let verdict = app.limiter().check_hit(check_request.hit().dry_run()).await;
    let body = to_json(&CheckResponse::new(&check_request, &verdict));
    let status = StatusCode::OK;
    Ok(check_response::respond(
        app.headers(),
        &check_request.policy,
        &verdict,
        status,
        body,
    ))
}
