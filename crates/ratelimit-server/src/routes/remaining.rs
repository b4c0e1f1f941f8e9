//! Looks without spending.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};

use super::to_json;
use crate::{
    answer::{self, Answer},
    app::App,
    question::Question,
    refusal::Refusal,
};

pub(super) async fn get(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let (parts, _) = request.into_parts();
    let rules = app.rules();
    let question = Question::from_query(&app, &rules, &parts)?;
    let Question { policy, key, .. } = &question;
    let permits = question.permits.get();
    let verdict = app.limiter().dry_run(policy, key, permits).await;
    let body = to_json(&Answer::new(&question, &verdict));
    let status = StatusCode::OK;
    Ok(answer::respond(
        app.headers(),
        &question.policy,
        &verdict,
        status,
        body,
    ))
}
