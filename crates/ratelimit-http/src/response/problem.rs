//! Bodies of refused requests.

use crate::response::{
    header_style::{Names, retry_after_secs, violated},
    text::TextBuffer,
};
use ratelimit_core::Decision;

/// Bodies are copied once, when their length is known.
type Body = TextBuffer<256>;

/// Why a request is refused, as `application/problem+json` (RFC 9457).
///
/// A body names policies and says how long to wait. It never holds a key, an address or the text
/// of an error.
///
/// ```
/// use ratelimit_http::response::ProblemDetails;
///
/// assert_eq!(ProblemDetails::UnknownClient.status(), 500);
/// assert!(ProblemDetails::UnknownClient.to_json().starts_with(b"{\"type\":\"about:blank\""));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ProblemDetails<'a> {
    /// The budget is spent: 429.
    Denied {
        /// The policy's name.
        policy: &'a str,
        /// What the store said.
        decision: &'a Decision,
    },
    /// The request may not come, whatever the budget: 403.
    Forbidden,
    /// The same, as if it came too often: 429, and waiting does not help.
    Blocked,
    /// The store did not answer, and nothing passes without it: 503.
    Unavailable,
    /// The request names a key that cannot be one, or none where one is needed: 400.
    InvalidKey,
    /// The request names more than one key: 400.
    AmbiguousKey,
    /// The service is not set up to know its clients: 500.
    UnknownClient,
    /// The service gave a limit nothing to count by: 500.
    Misconfigured,
}

impl ProblemDetails<'_> {
    /// The type of the body.
    pub const CONTENT_TYPE: &'static str = "application/problem+json";

    /// The status code.
    pub const fn status(&self) -> u16 {
        match self {
            ProblemDetails::Denied { .. } | ProblemDetails::Blocked => 429,
            ProblemDetails::Forbidden => 403,
            ProblemDetails::Unavailable => 503,
            ProblemDetails::InvalidKey | ProblemDetails::AmbiguousKey => 400,
            ProblemDetails::UnknownClient | ProblemDetails::Misconfigured => 500,
        }
    }

    /// The status of gRPC that means the same.
    pub const fn grpc_status(&self) -> u8 {
        match self {
            ProblemDetails::Denied { .. } | ProblemDetails::Blocked => 8,
            ProblemDetails::Forbidden => 7,
            ProblemDetails::Unavailable => 14,
            ProblemDetails::InvalidKey | ProblemDetails::AmbiguousKey => 3,
            ProblemDetails::UnknownClient | ProblemDetails::Misconfigured => 13,
        }
    }

    /// What is the matter, in a few words of ASCII.
    pub const fn title(&self) -> &'static str {
        match self {
            ProblemDetails::Denied { .. } => "Rate limit exceeded",
            ProblemDetails::Forbidden => "Forbidden",
            ProblemDetails::Blocked => "Too many requests",
            ProblemDetails::Unavailable => "Rate limiting is unavailable",
            ProblemDetails::InvalidKey => "The rate limit key is missing or malformed",
            ProblemDetails::AmbiguousKey => "The rate limit key was sent more than once",
            ProblemDetails::UnknownClient => "The client is unknown",
            ProblemDetails::Misconfigured => "The rate limit is not set up",
        }
    }

    /// The seconds of `Retry-After`, where waiting can help.
    pub fn retry_after_secs(&self) -> Option<u64> {
        match self {
            ProblemDetails::Denied { decision, .. } => retry_after_secs(decision),
            ProblemDetails::Unavailable => Some(1),
            _ => None,
        }
    }

    /// The body.
    pub fn to_json(&self) -> Vec<u8> {
        let mut body = Body::new();
        body.push(br#"{"type":""#);
        body.push(match self {
            // The type that draft-ietf-httpapi-ratelimit-headers registers.
            ProblemDetails::Denied { .. } => {
                b"https://iana.org/assignments/http-problem-types#quota-exceeded"
            }
            _ => b"about:blank",
        });
        body.push(br#"","title":""#);
        body.push(self.title().as_bytes());
        body.push(br#"","status":"#);
        body.push_number(self.status().into());
        if let ProblemDetails::Denied { policy, decision } = *self {
            body.push(br#","detail":""#);
            push_advice(&mut body, decision);
            body.push(br#"","violated-policies":["#);
            push_violated(&mut body, policy, decision);
            body.push(b"]");
        }
        body.push(b"}");
        body.as_bytes().to_vec()
    }
}

fn push_advice(body: &mut Body, decision: &Decision) {
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

fn push_violated(body: &mut Body, policy: &str, decision: &Decision) {
    let names = Names::new(policy, decision.limits().len());
    for (count, place) in violated(decision).enumerate() {
        if count > 0 {
            body.push(b",");
        }
        names.quote(body, place);
    }
}
