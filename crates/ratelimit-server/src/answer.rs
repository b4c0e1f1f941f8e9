//! What a check is answered.

use std::time::Duration;

use axum::{
    body::{Body, HttpBody as _},
    http::{
        HeaderName, HeaderValue, Response, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
};
use ratelimit_core::{
    Decision, FailureMode, FieldValue, HeaderStyle, Limit, Policy, Verdict, policy_field,
    retry_after_secs,
};
use serde::Serialize;

use crate::{foresight, question::Question};

const PASSED: &str = "Request allowed";
const DENIED: &str = "Rate limit exceeded";
const UNAVAILABLE: &str = "Rate limiting is unavailable";

/// The fields of an answer, in the order in which they are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer<'a> {
    allowed: bool,
    key: &'a str,
    algorithm: &'static str,
    remaining: u64,
    reset_after_seconds: u64,
    retry_after_seconds: Option<u64>,
    message: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_micros: Option<u64>,
    /// Who decided instead of the store, when it did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'static str>,
}

impl<'a> Answer<'a> {
    /// What a check came to.
    pub(crate) fn to_check(question: &'a Question, verdict: &Verdict) -> Answer<'a> {
        let spoken = Answer::spoken(question, verdict);
        if verdict.is_allowed() {
            let delay = verdict.decision().map(Decision::delay).unwrap_or_default();
            let delay_micros = u64::try_from(delay.as_micros()).ok();
            return Answer {
                delay_micros: delay_micros.filter(|micros| *micros > 0),
                ..spoken
            };
        }
        let (retry_after_seconds, message) = match verdict {
            Verdict::Unchecked {
                mode: FailureMode::Closed,
                ..
            } => (Some(1), UNAVAILABLE),
            _ => (verdict.decision().and_then(retry_after_secs), DENIED),
        };
        Answer {
            allowed: false,
            // A denial by this process alone has numbers of its own; all else would be no reason.
            remaining: verdict
                .decision()
                .map_or(spoken.remaining, |decision| decision.remaining),
            retry_after_seconds,
            message,
            ..spoken
        }
    }

    /// What a look saw: whether the permits of `question` would pass now.
    pub(crate) fn to_look(question: &'a Question, verdict: &Verdict) -> Answer<'a> {
        let seen = Answer::spoken(question, verdict);
        let permits = question.permits.get();
        let wait = match verdict {
            Verdict::Unchecked {
                mode: FailureMode::Closed,
                ..
            } => {
                return Answer {
                    allowed: false,
                    retry_after_seconds: Some(1),
                    message: UNAVAILABLE,
                    ..seen
                };
            }
            Verdict::Checked(decision) => {
                foresight::passes_after(&question.policy, decision, permits)
            }
            // What is left without the store is not known, and not told.
            Verdict::Unchecked { .. } => (permits <= seen.remaining).then_some(Duration::ZERO),
        };
        if wait == Some(Duration::ZERO) {
            return seen;
        }
        Answer {
            allowed: false,
            retry_after_seconds: wait.map(|wait| whole_seconds(wait).max(1)),
            message: DENIED,
            ..seen
        }
    }

    /// The numbers of the limit that speaks, in an answer that allows.
    fn spoken(question: &'a Question, verdict: &Verdict) -> Answer<'a> {
        let policy = &question.policy;
        let (speaker, remaining, reset_after) = match verdict {
            Verdict::Checked(decision) => (
                &policy.limits()[decision.speaker],
                decision.remaining,
                decision.reset_after,
            ),
            Verdict::Unchecked { decision, .. } => {
                let speaker = unchecked_speaker(policy, decision.as_ref());
                (speaker, speaker.limit(), Duration::ZERO)
            }
        };
        Answer {
            allowed: true,
            key: &question.shown,
            algorithm: speaker.algorithm().wire_name(),
            remaining,
            reset_after_seconds: whole_seconds(reset_after),
            retry_after_seconds: Some(0),
            message: PASSED,
            delay_micros: None,
            store: decider(verdict),
        }
    }
}

fn unchecked_speaker<'p>(policy: &'p Policy, decision: Option<&Decision>) -> &'p Limit {
    let limits = policy.limits();
    match decision {
        Some(decision) => &limits[decision.speaker],
        None => limits
            .iter()
            .min_by_key(|limit| limit.limit())
            .unwrap_or(&limits[0]),
    }
}

const fn decider(verdict: &Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Checked(_) => None,
        Verdict::Unchecked {
            decision: Some(_), ..
        } => Some("local"),
        Verdict::Unchecked { .. } => Some("none"),
    }
}

/// The status of a check's answer.
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

/// A response with the header fields of a verdict.
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
    if !is_empty {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Verdict::Checked(decision) = verdict {
        for (name, value) in style.fields(policy.name(), decision) {
            headers.insert(HeaderName::from_static(name), header_value(&value));
        }
        if style == HeaderStyle::Ietf {
            let limits = policy.limits().iter();
            let field = policy_field(policy.name(), limits.map(|l| (l.limit(), l.period())));
            let name = HeaderName::from_static("ratelimit-policy");
            headers.insert(name, header_value(&field));
        }
    }
    let retry_after = match verdict {
        verdict if verdict.is_allowed() => None,
        Verdict::Unchecked {
            mode: FailureMode::Closed,
            ..
        } => Some(1),
        _ => verdict.decision().and_then(retry_after_secs),
    };
    if let Some(seconds) = retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn header_value(value: &FieldValue) -> HeaderValue {
    HeaderValue::from_bytes(value.as_bytes()).expect("visible ASCII and spaces")
}

pub(crate) fn whole_seconds(span: Duration) -> u64 {
    let more = u64::from(span.subsec_nanos() > 0);
    span.as_secs().saturating_add(more)
}
