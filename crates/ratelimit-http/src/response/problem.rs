//! The bodies of rejected requests.

use crate::{
    key::KeyError,
    response::{
        header_style::{LimitNames, retry_after_secs, violated},
        text::TextBuffer,
    },
};
use ratelimit_core::Decision;

/// A body of usual length is assembled on the stack and copied once.
type Body = TextBuffer<256>;

/// The reason why a request is rejected, as `application/problem+json` (RFC 9457).
///
/// - A 429 body names the policy and says how long to wait:
///
///   ```json
///   {
///     "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
///     "title": "Rate limit exceeded",
///     "status": 429,
///     "detail": "Try again in 12 seconds.",
///     "violated-policies": ["login"]
///   }
///   ```
/// - The body of a request without a key has the reason as `code`: `missing_key`, `bad_key`, `ambiguous_key`, `no_client` or
///   `unknown_key_name`.
/// - A body never contains a key, an address or the text of an internal error.
/// - [`grpc_status`](Self::grpc_status) is the equivalent for gRPC.
///
/// ```
/// use ratelimit_http::response::ProblemDetails;
///
/// assert_eq!(ProblemDetails::UnknownClient.status(), 500);
/// assert_eq!(
///     String::from_utf8_lossy(&ProblemDetails::MissingKey.to_json()),
///     r#"{"type":"about:blank","title":"The rate limit key is missing","status":400,"code":"missing_key"}"#
/// );
/// let body = ProblemDetails::Unavailable.to_json();
/// assert_eq!(
///     String::from_utf8_lossy(&body),
///     r#"{"type":"about:blank","title":"Rate limiting is unavailable","status":503}"#
/// );
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ProblemDetails<'a> {
    /// The request is over its limit. The status is 429.
    Denied {
        /// The policy's name.
        policy: &'a str,
        /// The decision that denied the request.
        decision: &'a Decision,
    },
    /// A rule blocks the request. The status is 403.
    Forbidden,
    /// A rule blocks the request with status 429. There is no `Retry-After`, because waiting does not
    /// help.
    Blocked,
    /// The store did not answer and the failure mode is closed. The status is 503.
    Unavailable,
    /// The request does not have the key that it is counted by. The status is 400.
    MissingKey,
    /// The request has a malformed key. The status is 400.
    InvalidKey,
    /// The request has more than one key. The status is 400.
    AmbiguousKey,
    /// The service is not configured to know its clients' addresses. The status is 500.
    UnknownClient,
    /// A limit counts by a key that the service does not define. The status is 500.
    Misconfigured,
}

impl ProblemDetails<'_> {
    /// The media type of the body.
    pub const CONTENT_TYPE: &'static str = "application/problem+json";

    /// The status code as a number, because frameworks use several versions of the `http` crate:
    /// `StatusCode::from_u16(problem.status())` makes the type of yours.
    pub const fn status(&self) -> u16 {
        match self {
            ProblemDetails::Denied { .. } | ProblemDetails::Blocked => 429,
            ProblemDetails::Forbidden => 403,
            ProblemDetails::Unavailable => 503,
            ProblemDetails::MissingKey
            | ProblemDetails::InvalidKey
            | ProblemDetails::AmbiguousKey => 400,
            ProblemDetails::UnknownClient | ProblemDetails::Misconfigured => 500,
        }
    }

    /// The equivalent gRPC status, such as 8 (`RESOURCE_EXHAUSTED`) for 429.
    pub const fn grpc_status(&self) -> u8 {
        match self {
            ProblemDetails::Denied { .. } | ProblemDetails::Blocked => 8,
            ProblemDetails::Forbidden => 7,
            ProblemDetails::Unavailable => 14,
            ProblemDetails::MissingKey
            | ProblemDetails::InvalidKey
            | ProblemDetails::AmbiguousKey => 3,
            ProblemDetails::UnknownClient | ProblemDetails::Misconfigured => 13,
        }
    }

    /// The title: a short phrase of ASCII, the same for every occurrence of the problem.
    pub const fn title(&self) -> &'static str {
        match self {
            ProblemDetails::Denied { .. } => "Rate limit exceeded",
            ProblemDetails::Forbidden => "Forbidden",
            ProblemDetails::Blocked => "Too many requests",
            ProblemDetails::Unavailable => "Rate limiting is unavailable",
            ProblemDetails::MissingKey => "The rate limit key is missing",
            ProblemDetails::InvalidKey => "The rate limit key is malformed",
            ProblemDetails::AmbiguousKey => "The rate limit key was sent more than once",
            ProblemDetails::UnknownClient => "The client is unknown",
            ProblemDetails::Misconfigured => "The rate limit is not set up",
        }
    }

    /// The reason why a request has no key, such as `missing_key`: the member `code` of the body. `None` for other problems.
    pub const fn code(&self) -> Option<&'static str> {
        let error = match self {
            ProblemDetails::MissingKey => KeyError::Missing,
            ProblemDetails::InvalidKey => KeyError::Invalid,
            ProblemDetails::AmbiguousKey => KeyError::Ambiguous,
            ProblemDetails::UnknownClient => KeyError::NoClientAddress,
            ProblemDetails::Misconfigured => KeyError::UnknownName,
            _ => return None,
        };
        Some(error.as_str())
    }

    /// The seconds of `Retry-After`, or `None` if waiting cannot help.
    pub fn retry_after_secs(&self) -> Option<u64> {
        match self {
            ProblemDetails::Denied { decision, .. } => retry_after_secs(decision),
            ProblemDetails::Unavailable => Some(1),
            _ => None,
        }
    }

    /// The body as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let mut body = Body::new();
        body.push(br#"{"type":""#);
        body.push(match self {
            // Registered by draft-ietf-httpapi-ratelimit-headers.
            ProblemDetails::Denied { .. } => {
                b"https://iana.org/assignments/http-problem-types#quota-exceeded"
            }
            _ => b"about:blank",
        });
        body.push(br#"","title":""#);
        body.push(self.title().as_bytes());
        body.push(br#"","status":"#);
        body.push_number(self.status().into());
        if let Some(code) = self.code() {
            body.push(br#","code":""#);
            body.push(code.as_bytes());
            body.push(b"\"");
        }
        if let ProblemDetails::Denied { policy, decision } = *self {
            body.push(br#","detail":""#);
            push_wait(&mut body, decision);
            body.push(br#"","violated-policies":["#);
            push_violated(&mut body, policy, decision);
            body.push(b"]");
        }
        body.push(b"}");
        body.as_bytes().to_vec()
    }
}

/// Writes how long to wait.
fn push_wait(body: &mut Body, decision: &Decision) {
    match retry_after_secs(decision) {
        None => body.push(b"The request costs more than the limit can ever hold."),
        Some(1) => body.push(b"Try again in 1 second."),
        Some(wait) => {
            body.push(b"Try again in ");
            body.push_number(wait);
            body.push(b" seconds.");
        }
    }
}

/// Writes the names of the limits that deny the request.
fn push_violated(body: &mut Body, policy: &str, decision: &Decision) {
    let names = LimitNames::new(policy, decision.limits().len());
    for (count, index) in violated(decision).enumerate() {
        if count > 0 {
            body.push(b",");
        }
        names.quote(body, index);
    }
}
