//! Forgets what one key has spent.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use serde::Serialize;

use super::json;
use crate::{access, app::App, question::Question, refusal::Refusal};

#[derive(Serialize)]
struct Done<'a> {
    key: &'a str,
    algorithm: &'static str,
    reset: bool,
}

pub(super) async fn delete(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let rules = app.rules();
    access::admit_request(&app, &rules, &request)?;
    let (parts, _) = request.into_parts();
    let question = Question::from_query(&app, &rules, &parts)?;
    let Question {
        policy, key, shown, ..
    } = &question;
    let reset = app.limiter().reset(policy, key).await;
    reset.map_err(|_| Refusal::unavailable())?;
    tracing::info!(policy = policy.name(), "reset");
    let done = Done {
        key: shown,
        algorithm: policy.limits()[0].algorithm().wire_name(),
        reset: true,
    };
    Ok(json(StatusCode::OK, &done))
}
