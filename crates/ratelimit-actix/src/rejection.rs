//! Answers to requests that do not reach the service.

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
};
use ratelimit_core::{Decision, Policy, Problem, retry_after_millis};

use crate::{
    headers::{self, GRPC_RETRY_PUSHBACK},
    key::NoKey,
};

/// A request that does not reach the service, and why.
///
/// ```
/// use actix_web::HttpResponse;
/// use ratelimit_actix::Rejection;
///
/// fn json_429(rejection: &Rejection<'_>) -> HttpResponse {
///     // The status and headers of the usual answer, with a body of our own.
///     rejection.response().set_body("{\"error\":\"slow_down\"}").map_into_boxed_body()
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rejection<'a> {
    /// The request.
    pub request: &'a HttpRequest,
    /// The policy that is applied.
    pub policy: &'a Policy,
    /// Why.
    pub cause: Cause<'a>,
}

/// Why a request does not reach the service.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Cause<'a> {
    /// The budget is spent: 429.
    Denied(&'a Decision),
    /// The store did not answer, and the failure mode is closed: 503.
    Unavailable,
    /// The request has no key: 400, or 500 where the service does not know its clients.
    NoKey(NoKey),
}

impl Rejection<'_> {
    /// The usual answer: `application/problem+json`, or gRPC's own terms for a gRPC request.
    pub fn response(&self) -> HttpResponse {
        let problem = self.problem();
        let mut response = match grpc_type(self.request.headers()) {
            Some(grpc) => grpc_response(&problem, grpc),
            None => problem_response(&problem),
        };
        let no_store = HeaderValue::from_static("no-store");
        response
            .headers_mut()
            .insert(header::CACHE_CONTROL, no_store);
        response
    }

    /// Whether the request is one of gRPC, whose clients read nothing but its own status.
    pub fn is_grpc(&self) -> bool {
        grpc_type(self.request.headers()).is_some()
    }

    /// What is the matter, in the words that all adapters share.
    pub fn problem(&self) -> Problem<'_> {
        match self.cause {
            Cause::Denied(decision) => Problem::Denied {
                policy: self.policy.name(),
                decision,
            },
            Cause::Unavailable => Problem::Unavailable,
            Cause::NoKey(NoKey::AmbiguousKey) => Problem::AmbiguousKey,
            Cause::NoKey(NoKey::NoClient) => Problem::NoClient,
            Cause::NoKey(_) => Problem::BadKey,
        }
    }

    /// Adds to a user's answer what every answer carries.
    pub(crate) fn complete(&self, response: &mut HttpResponse) {
        if let Some(seconds) = self.problem().retry_after_secs()
            && !self.is_grpc()
        {
            headers::retry_after(seconds, response.headers_mut());
        }
    }
}

fn problem_response(problem: &Problem<'_>) -> HttpResponse {
    let status = StatusCode::from_u16(problem.status());
    let mut response = HttpResponse::new(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    let content_type = HeaderValue::from_static(Problem::CONTENT_TYPE);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response.set_body(problem.to_json()).map_into_boxed_body()
}

/// An answer of headers only, which gRPC calls "trailers-only".
fn grpc_response(problem: &Problem<'_>, content_type: &'static str) -> HttpResponse {
    let mut response = HttpResponse::new(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    let status = headers::number(problem.grpc_status().into());
    headers.insert(HeaderName::from_static("grpc-status"), status);
    let message = HeaderValue::from_static(problem.title());
    headers.insert(HeaderName::from_static("grpc-message"), message);
    if let Problem::Denied { decision, .. } = problem {
        let pushback = match retry_after_millis(decision) {
            Some(millis) => headers::number(millis),
            // A negative wait tells the client not to try again.
            None => HeaderValue::from_static("-1"),
        };
        headers.insert(GRPC_RETRY_PUSHBACK.clone(), pushback);
    }
    response.set_body("").map_into_boxed_body()
}

/// The content type of an answer to a request of gRPC.
fn grpc_type(headers: &HeaderMap) -> Option<&'static str> {
    let content_type = headers.get(header::CONTENT_TYPE)?.as_bytes();
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
