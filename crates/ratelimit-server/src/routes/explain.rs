//! Why a key is denied, what each limit says, and when it will pass.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use ratelimit_core::{Algorithm, Decision, Limit, LimitDecision, Outcome, Verdict};
use serde::Serialize;

use super::json;
use crate::{access, answer::is_false, app::App, question::Question, refusal::Refusal};

/// What a check would come to, and why.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    key: &'a str,
    policy: &'a str,
    permits: u64,
    allowed: bool,
    reason: String,
    passes_after_micros: Option<u64>,
    limits: Vec<Said>,
    /// Whether it would pass only because its policy watches, and denies nothing.
    #[serde(skip_serializing_if = "is_false")]
    shadow: bool,
}

/// What one limit says.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Said {
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
) -> Result<Response<Body>, Refusal> {
    let rules = app.rules();
    access::admit_request(&app, &rules, &request)?;
    let (parts, _) = request.into_parts();
    let question = Question::from_query(&app, &rules, &parts)?;
    let Question { policy, key, .. } = &question;
    let permits = question.permits.get();
    let foreseen = app.limiter().dry_run(policy, key, permits).await;
    let Verdict::Checked(decision) = foreseen else {
        return Err(Refusal::unavailable());
    };
    Ok(json(StatusCode::OK, &explain(&question, &decision)))
}

fn explain<'a>(question: &'a Question, decision: &Decision) -> Explanation<'a> {
    let permits = question.permits.get();
    let limits = question.policy.limits().iter().zip(decision.limits());
    let limits: Vec<Said> = limits
        .map(|(limit, seen)| Said::new(limit, &seen))
        .collect();
    Explanation {
        key: &question.shown,
        policy: question.policy.name(),
        permits,
        allowed: decision.admits(),
        reason: reason(&limits, permits),
        passes_after_micros: decision.retry_after().map(micros),
        limits,
        shadow: decision.admits() && !decision.is_allowed(),
    }
}

impl Said {
    fn new(limit: &Limit, seen: &LimitDecision) -> Said {
        let passes_after = match seen.outcome {
            Outcome::Allowed { .. } => Some(Duration::ZERO),
            Outcome::Denied { retry_after } => Some(retry_after),
            Outcome::Impossible => None,
        };
        Said {
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

fn reason(limits: &[Said], permits: u64) -> String {
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
