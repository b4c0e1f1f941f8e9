//! `explain`: the state of each limit for a key, and when the next check is allowed.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use ratelimit_core::{Algorithm, Decision, Limit, LimitDecision, Outcome, PrefetchState, Verdict};
use serde::Serialize;

use crate::{
    admin_auth,
    api_error::ApiError,
    app::App,
    audit::Audit,
    check_request::CheckRequest,
    check_response::{decided_by, is_false},
    json_response::json,
    micros::micros,
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
    /// Present if the policy prefetches.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefetch: Option<PrefetchExplanation>,
    /// The check would be allowed only because the policy is in shadow mode.
    #[serde(skip_serializing_if = "is_false")]
    shadow: bool,
    /// `local` or `none` if the store did not decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'static str>,
}

/// The state of one limit.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LimitExplanation {
    text: String,
    /// The name of the key that the limit counts by, if it is not the check's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    algorithm: &'static str,
    allowed: bool,
    limit: u64,
    remaining: u64,
    reset_after_micros: u64,
    passes_after_micros: Option<u64>,
}

/// How the policy prefetches, and the units of the key that this server holds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrefetchExplanation {
    share_percent: u32,
    slice_units: Vec<u64>,
    hold_micros: u64,
    on_hand: u64,
}

impl From<PrefetchState> for PrefetchExplanation {
    fn from(state: PrefetchState) -> PrefetchExplanation {
        PrefetchExplanation {
            share_percent: state.share_percent,
            slice_units: state.slice_units,
            hold_micros: micros(state.hold),
            on_hand: state.on_hand,
        }
    }
}

pub(super) async fn get(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let rules = app.rules();
    let caller = admin_auth::admit_request(&app, &rules, &request)?;
    let mut audit = Audit::new("explain", caller, &request);
    let (parts, _) = request.into_parts();
    let check_request = CheckRequest::explained(&app, &rules, &parts)?;
    audit.about(&check_request.policy, &check_request.keys);
    let verdict = app.limiter().check_hit(check_request.hit().dry_run()).await;
    let prefetch = app.limiter().prefetch_state(check_request.hit());
    audit.succeed();
    let explanation = Explanation {
        prefetch: prefetch.map(PrefetchExplanation::from),
        ..explain(&check_request, &verdict)
    };
    Ok(json(StatusCode::OK, &explanation))
}

/// Explains the store's decision, that of the local fallback, or why there is none.
fn explain<'a>(check_request: &'a CheckRequest, verdict: &Verdict) -> Explanation<'a> {
    let permits = check_request.permits.get();
    let decision = verdict.decision();
    let seen = decision.into_iter().flat_map(Decision::limits);
    let policy = &check_request.policy;
    let limits = policy.limits().iter().zip(seen).enumerate();
    let limits: Vec<LimitExplanation> = limits
        .map(|(index, (limit, seen))| LimitExplanation::new(limit, policy.key_name(index), &seen))
        .collect();
    let passes_after = match decision {
        Some(decision) => decision.retry_after(),
        None => verdict.is_allowed().then_some(Duration::ZERO),
    };
    Explanation {
        key: &check_request.shown,
        policy: policy.name(),
        permits,
        allowed: verdict.is_allowed(),
        reason: reason(verdict, &limits, permits),
        passes_after_micros: passes_after.map(micros),
        limits,
        prefetch: None,
        shadow: decision.is_some_and(|decision| decision.admits() && !decision.is_allowed()),
        store: decided_by(verdict),
    }
}

impl LimitExplanation {
    /// The limit as its policy writes it, as in `5/min by ip`.
    fn written(&self) -> String {
        match &self.by {
            Some(by) => format!("{} by {by}", self.text),
            None => self.text.clone(),
        }
    }

    fn new(limit: &Limit, by: Option<&str>, seen: &LimitDecision) -> LimitExplanation {
        let passes_after = match seen.outcome {
            Outcome::Allowed { .. } => Some(Duration::ZERO),
            Outcome::Denied { retry_after } => Some(retry_after),
            _ => None,
        };
        LimitExplanation {
            text: limit.to_string(),
            by: by.map(str::to_owned),
            algorithm: limit.algorithm().wire_name(),
            allowed: seen.outcome.is_allowed(),
            limit: seen.limit,
            remaining: seen.remaining,
            reset_after_micros: micros(seen.reset_after),
            passes_after_micros: passes_after.map(micros),
        }
    }
}

fn reason(verdict: &Verdict, limits: &[LimitExplanation], permits: u64) -> String {
    let Verdict::Unchecked { mode, reason, .. } = verdict else {
        return refusals(limits, permits);
    };
    let (mode, why) = (mode.as_str(), reason.as_str());
    let start = format!("the store did not decide ({why}), the failure mode `{mode}` does");
    if limits.is_empty() {
        return start;
    }
    format!("{start}: {}", refusals(limits, permits))
}

/// The limits that refuse, with their numbers.
fn refusals(limits: &[LimitExplanation], permits: u64) -> String {
    let refusals: Vec<String> = limits
        .iter()
        .filter(|limit| !limit.allowed)
        .map(|limit| match limit.passes_after_micros {
            Some(_) if limit.algorithm == Algorithm::PenaltyBox.wire_name() => {
                format!("{} refuses the key for a while", limit.written())
            }
            Some(_) => format!(
                "{} has {} left of {}",
                limit.written(),
                limit.remaining,
                limit.limit
            ),
            None => format!("{} never holds {permits}", limit.written()),
        })
        .collect();
    if refusals.is_empty() {
        return "every limit has enough left".to_owned();
    }
    refusals.join("; ")
}
