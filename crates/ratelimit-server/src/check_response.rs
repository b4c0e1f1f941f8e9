//! The response to a check.

use std::time::Duration;

use axum::{
    body::{Body, HttpBody as _},
    http::{
        HeaderName, HeaderValue, Response, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
};
use ratelimit_core::{Decision, FailureMode, Limit, Policy, Verdict};
use ratelimit_http::response::{HeaderStyle, HeaderText, ratelimit_policy_value, retry_after_secs};
use serde::Serialize;

use crate::check_request::CheckRequest;

const USUAL_FIELDS: usize = 8;

const ALLOWED: &str = "Request allowed";
const DENIED: &str = "Rate limit exceeded";
const UNAVAILABLE: &str = "Rate limiting is unavailable";

/// Body of the response to a check. Fields are serialised in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckResponse<'a> {
    allowed: bool,
    key: &'a str,
    policy: &'a str,
    algorithm: &'static str,
    /// The capacity of the limit whose numbers follow.
    limit: u64,
    remaining: u64,
    reset_after_seconds: u64,
    retry_after_seconds: Option<u64>,
    message: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_micros: Option<u64>,
    /// `local` or `none` if the store did not decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'static str>,
    /// The check was allowed above a limit by a soft throttle.
    #[serde(skip_serializing_if = "is_false")]
    over: bool,
    /// The check was allowed only because the policy is in shadow mode.
    #[serde(skip_serializing_if = "is_false")]
    shadow: bool,
    /// Token for refund, settle, release and renew.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<&'a str>,
}

impl<'a> CheckResponse<'a> {
    /// The response to a check or a dry run.
    pub(crate) fn new(check_request: &'a CheckRequest, verdict: &Verdict) -> CheckResponse<'a> {
        let reported = CheckResponse::reported(check_request, verdict);
        if verdict.is_allowed() {
            let decision = verdict.decision();
            let delay = decision.map(Decision::delay).unwrap_or_default();
            let delay_micros = u64::try_from(delay.as_micros()).ok();
            return CheckResponse {
                delay_micros: delay_micros.filter(|micros| *micros > 0),
                over: decision.is_some_and(|decision| decision.is_over),
                shadow: decision.is_some_and(|decision| !decision.is_allowed()),
                ..reported
            };
        }
        let (retry_after_seconds, message) = match verdict {
            Verdict::Unchecked {
                mode: FailureMode::Closed,
                ..
            } => (Some(1), UNAVAILABLE),
            _ => (verdict.decision().and_then(retry_after_secs), DENIED),
        };
        CheckResponse {
            allowed: false,
            // Without a decision nothing may be spent: the failure mode refuses everything.
            remaining: verdict.decision().map_or(0, |decision| decision.remaining),
            retry_after_seconds,
            message,
            ..reported
        }
    }

    /// Adds a receipt.
    pub(crate) fn with_receipt(self, receipt: Option<&'a str>) -> CheckResponse<'a> {
        CheckResponse { receipt, ..self }
    }

    /// An allowing response with the numbers of the binding limit.
    fn reported(check_request: &'a CheckRequest, verdict: &Verdict) -> CheckResponse<'a> {
        let policy = &check_request.policy;
        // The store's numbers, or those of the local fallback.
        let (limit, capacity, remaining, reset_after) = if let Some(decision) = verdict.decision() {
            let limit = &policy.limits()[decision.binding];
            (
                limit,
                decision.limit,
                decision.remaining,
                decision.reset_after,
            )
        } else {
            let limit = smallest_limit(policy);
            (limit, limit.capacity(), limit.capacity(), Duration::ZERO)
        };
        CheckResponse {
            allowed: true,
            key: &check_request.shown,
            policy: policy.name(),
            algorithm: limit.algorithm().wire_name(),
            limit: capacity,
            remaining,
            reset_after_seconds: whole_seconds(reset_after),
            retry_after_seconds: Some(0),
            message: ALLOWED,
            delay_micros: None,
            store: decided_by(verdict),
            over: false,
            shadow: false,
            receipt: None,
        }
    }
}

fn smallest_limit(policy: &Policy) -> &Limit {
    let limits = policy.limits();
    let smallest = limits.iter().min_by_key(|limit| limit.capacity());
    smallest.unwrap_or(&limits[0])
}

/// The decider, if it was not the store: `local` or `none`.
pub(crate) const fn decided_by(verdict: &Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Checked(_) => None,
        Verdict::Unchecked {
            decision: Some(_), ..
        } => Some("local"),
        _ => Some("none"),
    }
}

/// The status code for a verdict.
pub(crate) const fn status(verdict: &Verdict) -> StatusCode {
    match verdict {
        verdict if verdict.is_allowed() => StatusCode::OK,
        Verdict::Unchecked {
            mode: FailureMode::Closed,
            ..
        } => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::TOO_MANY_REQUESTS,
    }
}

/// Builds a response with the rate-limit headers of a verdict.
pub(crate) fn respond(
    style: HeaderStyle,
    policy: &Policy,
    verdict: &Verdict,
    status: StatusCode,
    body: Body,
) -> Response<Body> {
    let is_empty = body.size_hint().exact() == Some(0);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    // The fields of a check, and those that the guard and axum add: the map does not grow on the way.
    headers.reserve(USUAL_FIELDS);
    if !is_empty {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    // Numbers of a policy in shadow mode are not the budget that the client has left.
    if let Verdict::Checked(decision) = verdict
        && decision.is_enforced
    {
        for (name, value) in style.fields(policy.name(), decision) {
            headers.insert(HeaderName::from_static(name), header_value(&value));
        }
        if style == HeaderStyle::Ietf {
            let field = ratelimit_policy_value(policy);
            let name = HeaderName::from_static("ratelimit-policy");
            headers.insert(name, header_value(&field));
        }
    }
    let is_allowed = status == StatusCode::OK;
    if let Some(seconds) = retry_after(verdict).filter(|_| !is_allowed) {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The seconds after which a denied check may be repeated, or `None` if it can never pass.
fn retry_after(verdict: &Verdict) -> Option<u64> {
    match verdict {
        Verdict::Unchecked {
            mode: FailureMode::Closed,
            ..
        } => Some(1),
        _ => verdict.decision().and_then(retry_after_secs),
    }
}

/// Builds the response to checks that were decided together. `Retry-After` is the longest wait of those that were denied;
/// it is left out if one of them can never pass.
pub(crate) fn respond_joint(is_allowed: bool, verdicts: &[&Verdict], body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if is_allowed {
        return response;
    }
    let denied = || verdicts.iter().filter(|verdict| !verdict.is_allowed());
    let waits = denied().map(|verdict| retry_after(verdict));
    if let Some(seconds) = waits
        .collect::<Option<Vec<u64>>>()
        .and_then(|waits| waits.into_iter().max())
    {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    // The worst status of its checks: 503 where a closed failure mode denied, else 429.
    let worst = denied().map(|verdict| status(verdict)).max();
    *response.status_mut() = worst.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    response
}

fn header_value(value: &HeaderText) -> HeaderValue {
    HeaderValue::from_bytes(value.as_bytes()).expect("visible ASCII and spaces")
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
pub(crate) const fn is_false(flag: &bool) -> bool {
    !*flag
}

fn whole_seconds(span: Duration) -> u64 {
    let round_up = u64::from(span.subsec_nanos() > 0);
    span.as_secs().saturating_add(round_up)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use futures_util::FutureExt as _;
    use ratelimit_core::{Key, Limiter, Throttle};
    use serde_json::{Value, json};

    use super::*;

    /// The answers to checks of one permit each.
    fn answers(policy: Policy, checks: usize) -> Vec<Value> {
        let limiter = Limiter::in_memory();
        let check_request = CheckRequest {
            policy,
            keys: Key::new("k").unwrap().into(),
            shown: "k".to_owned(),
            permits: NonZeroU64::MIN,
            wants_receipt: false,
            deadline: None,
        };
        let check = |_| {
            let check = limiter.check_hit(check_request.hit());
            let verdict = check.now_or_never().unwrap();
            serde_json::to_value(CheckResponse::new(&check_request, &verdict)).unwrap()
        };
        (0..checks).map(check).collect()
    }

    #[test]
    fn a_check_allowed_by_a_soft_throttle_is_marked_over() {
        let hard = Policy::parse("p", "fixed_window 1/d").unwrap();
        let soft = hard.with_throttle(Throttle::Soft { percent: 100 }).unwrap();

        let answers = answers(soft, 3);

        let told = answers.iter().map(|it| (&it["allowed"], it.get("over")));
        let (yes, no) = (json!(true), json!(false));
        let expected = [(&yes, None), (&yes, Some(&yes)), (&no, None)];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_check_allowed_by_shadow_mode_is_marked() {
        let watched = Policy::parse("p", "fixed_window 1/d").unwrap().shadow();

        let answers = answers(watched, 2);

        let told = answers.iter().map(|it| (&it["allowed"], it.get("shadow")));
        let yes = json!(true);
        assert_eq!(told.collect::<Vec<_>>(), [(&yes, None), (&yes, Some(&yes))]);
    }
}
