//! Responses to requests that are not served.

use std::fmt;

use crate::{
    framework::{Framework, RequestHead},
    key::KeyError,
    response::{GRPC_RETRY_PUSHBACK, number, retry_after},
};
use crate::{
    policy::BlockStatus,
    response::{ProblemDetails, retry_after_millis},
};
use ratelimit_core::{Decision, Policy};

/// A request that is not served, and the reason.
///
/// Functions for `on_denied` and `on_error` receive it. [`response`](Self::response) is the usual response,
/// from which most functions start. The layer adds `Retry-After` and its header fields afterwards.
///
/// | reason | status | gRPC status | `Retry-After` |
/// |---|---|---|---|
/// | [`Denied`](RejectionReason::Denied) | 429 | 8 | if waiting helps |
/// | [`Blocked`](RejectionReason::Blocked) | 403 or 429 | 7 or 8 | no |
/// | [`Unavailable`](RejectionReason::Unavailable) | 503 | 14 | 1 second |
/// | [`NoKey`](RejectionReason::NoKey) | 400 or 500 | 3 or 13 | no |
///
/// - The body is a [`ProblemDetails`]. Responses to HEAD have none.
/// - A gRPC request is recognised by its content type. Its response has status 200 and the gRPC status.
/// - Every response has `Cache-Control: no-store`.
#[non_exhaustive]
#[doc(alias("429", "Too Many Requests", "Retry-After"))]
pub struct Rejection<'a, F: Framework> {
    /// The request.
    pub request: &'a F::Request,
    /// The policy that was applied.
    pub policy: &'a Policy,
    /// The reason.
    pub cause: RejectionReason<'a>,
}

/// The reason why a request is not served.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RejectionReason<'a> {
    /// The request is over its limit. The response is 429.
    Denied(&'a Decision),
    /// A rule of the policy blocks the request. The response is 403, or 429 without `Retry-After`.
    Blocked(BlockStatus),
    /// The store did not answer and the failure mode is closed. The response is 503.
    Unavailable,
    /// The request has no key. The response is 400, or 500 if the service is not configured to find it.
    NoKey(KeyError),
}

impl<F: Framework> Rejection<'_, F> {
    /// The usual response: `application/problem+json`, or a trailers-only response for a gRPC request.
    pub fn response(&self) -> F::Response {
        let problem = self.problem();
        let mut response = match grpc_type(&F::head(self.request)) {
            Some(grpc) => grpc_response::<F>(&problem, grpc),
            None => problem_response::<F>(&problem),
        };
        set::<F>(&mut response, &F::CACHE_CONTROL, F::NO_STORE);
        response
    }

    /// Whether this is a gRPC request, by its content type.
    ///
    /// Its clients read the gRPC status and no body: give them [`response`](Self::response).
    pub fn is_grpc(&self) -> bool {
        grpc_type(&F::head(self.request)).is_some()
    }

    /// The problem details of the response, without a framework's types.
    pub fn problem(&self) -> ProblemDetails<'_> {
        match self.cause {
            RejectionReason::Denied(decision) => ProblemDetails::Denied {
                policy: self.policy.name(),
                decision,
            },
            RejectionReason::Blocked(BlockStatus::TooManyRequests) => ProblemDetails::Blocked,
            RejectionReason::Blocked(_) => ProblemDetails::Forbidden,
            RejectionReason::Unavailable => ProblemDetails::Unavailable,
            RejectionReason::NoKey(KeyError::UnknownName) => ProblemDetails::Misconfigured,
            RejectionReason::NoKey(KeyError::Ambiguous) => ProblemDetails::AmbiguousKey,
            RejectionReason::NoKey(KeyError::NoClientAddress) => ProblemDetails::UnknownClient,
            RejectionReason::NoKey(KeyError::Missing) => ProblemDetails::MissingKey,
            RejectionReason::NoKey(KeyError::Invalid) => ProblemDetails::InvalidKey,
        }
    }

    /// Adds `Retry-After`, and removes the body of a response to HEAD.
    pub(crate) fn complete(&self, mut response: F::Response) -> F::Response {
        if let Some(seconds) = self.problem().retry_after_secs()
            && !self.is_grpc()
        {
            retry_after::<F>(seconds, F::headers_mut(&mut response));
        }
        if F::head(self.request).method() == "HEAD" {
            return F::without_body(response);
        }
        response
    }
}

/// A response with the problem details as JSON.
fn problem_response<F: Framework>(problem: &ProblemDetails<'_>) -> F::Response {
    let mut response = F::response(problem.status(), problem.to_json());
    set::<F>(&mut response, &F::CONTENT_TYPE, F::PROBLEM_JSON);
    response
}

/// A response of header fields only, which gRPC calls "trailers-only".
fn grpc_response<F: Framework>(
    problem: &ProblemDetails<'_>,
    content_type: &'static str,
) -> F::Response {
    let mut response = F::response(200, Vec::new());
    set::<F>(&mut response, &F::CONTENT_TYPE, F::constant(content_type));
    let status = number::<F>(problem.grpc_status().into());
    set::<F>(&mut response, &F::name("grpc-status"), status);
    let message = F::constant(problem.title());
    set::<F>(&mut response, &F::name("grpc-message"), message);
    let wait = match problem {
        ProblemDetails::Denied { decision, .. } => retry_after_millis(decision),
        ProblemDetails::Blocked => None,
        _ => return response,
    };
    // gRPC defines a negative pushback as "do not retry".
    let pushback = wait.map_or_else(|| F::constant("-1"), number::<F>);
    set::<F>(&mut response, &F::name(GRPC_RETRY_PUSHBACK), pushback);
    response
}

/// Sets a header field of a response.
fn set<F: Framework>(response: &mut F::Response, name: &F::Name, value: F::Value) {
    F::insert(F::headers_mut(response), name, value);
}

/// The content type of the response to a gRPC request, or `None` for other requests.
fn grpc_type(request: &impl RequestHead) -> Option<&'static str> {
    let content_type = request.lines("content-type").next()?;
    let known = [
        "application/grpc-web-text",
        "application/grpc-web",
        "application/grpc",
    ];
    known.into_iter().find(|known| {
        let Some((start, rest)) = content_type.split_at_checked(known.len()) else {
            return false;
        };
        start.eq_ignore_ascii_case(known.as_bytes())
            && matches!(rest, [] | [b'+' | b';' | b' ', ..])
    })
}

#[allow(
    clippy::expl_impl_clone_on_copy,
    reason = "a derive would require `F::Request: Copy`"
)]
impl<F: Framework> Clone for Rejection<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Framework> Copy for Rejection<'_, F> {}

impl<F: Framework> fmt::Debug for Rejection<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejection")
            .field("request", self.request)
            .field("policy", self.policy)
            .field("cause", &self.cause)
            .finish()
    }
}
