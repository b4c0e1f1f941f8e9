//! `explain`: the state of each limit for a key, and when the next check is allowed.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use ratelimit_core::{Algorithm, Decision, Limit, LimitDecision, Outcome, Verdict};
use serde::Serialize;

use super::json;
use crate::{
    admin_auth, api_error::ApiError, app::App, audit::Audit, check_request::CheckRequest,
    check_response::is_false,
};

/// The outcome of a dry run, and the reason.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    key: &'a str,
    policy: &'a str,
    permits: u64,
    allowed: bool,
    reason: String,
    passes_after_micros: Option<u64>,
    limits: Vec<LimitExplanation>,
    /// The check would be allowed only because the policy is in shadow mode.
    #[serde(skip_serializing_if = "is_false")]
    shadow: bool,
}

/// The state of one limit.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LimitExplanation {
    text: String,
    algorithm: &'static str,
    allowed: bool,
    limit: u64,
    remaining: u64,
    reset_after_micros: u64,
    passes_after_micros: Option<u64>,
}

pub(super) async fn get(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let rules = app.rules();
    admin_auth::admit_request(&app, &rules, &request)?;
    let mut audit = Audit::new("explain", &request);
    let (parts, _) = request.into_parts();
    let check_request = CheckRequest::from_query(&app, &rules, &parts)?;
    let CheckRequest { policy, key, .. } = &check_request;
    audit.about(policy, key);
    let permits = check_request.permits.get();
    let verdict = app.limiter().dry_run(policy, key, permits).await;
    let Verdict::Checked(decision) = verdict else {
        return Err(ApiError::unavailable());
    };
    audit.succeed();
    Ok(json(StatusCode::OK, &explain(&check_request, &decision)))
}

fn explain<'a>(check_request: &'a CheckRequest, decision: &Decision) -> Explanation<'a> {
    let permits = check_request.permits.get();
    let limits = check_request.policy.limits().iter().zip(decision.limits());
    let limits: Vec<LimitExplanation> = limits
        .map(|(limit, seen)| LimitExplanation::new(limit, &seen))
        .collect();
    Explanation {
        key: &check_request.shown,
        policy: check_request.policy.name(),
        permits,
        allowed: decision.admits(),
        reason: reason(&limits, permits),
        passes_after_micros: decision.retry_after().map(micros),
        limits,
        shadow: decision.admits() && !decision.is_allowed(),
    }
}

impl LimitExplanation {
    fn new(limit: &Limit, seen: &LimitDecision) -> LimitExplanation {
        let passes_after = match seen.outcome {
            Outcome::Allowed { .. } => Some(Duration::ZERO),
            Outcome::Denied { retry_after } => Some(retry_after),
            Outcome::Impossible => None,
        };
        LimitExplanation {
            text: limit.to_string(),
            algorithm: limit.algorithm().wire_name(),
            allowed: seen.outcome.is_allowed(),
            limit: seen.limit,
            remaining: seen.remaining,
            reset_after_micros: micros(seen.reset_after),
            passes_after_micros: passes_after.map(micros),
        }
    }
}

fn reason(limits: &[LimitExplanation], permits: u64) -> String {
    let refusals: Vec<String> = limits
        .iter()
        .filter(|limit| !limit.allowed)
        .map(|limit| match limit.passes_after_micros {
            Some(_) if limit.algorithm == Algorithm::PenaltyBox.wire_name() => {
                format!("{} refuses the key for a while", limit.text)
            }
            Some(_) => format!(
                "{} has {} left of {}",
                limit.text, limit.remaining, limit.limit
            ),
            None => format!("{} never holds {permits}", limit.text),
        })
        .collect();
    if refusals.is_empty() {
        return "every limit has enough left".to_owned();
    }
    refusals.join("; ")
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
