//! Bodies of refused requests.

use crate::decision::Decision;
use crate::fields::{Names, Text, retry_after_secs, violated};

/// Bodies are copied once, when their length is known.
type Body = Text<256>;

/// Why a request is refused, as `application/problem+json` (RFC 9457).
///
/// A body names policies and says how long to wait. It never holds a key, an address or the text
/// of an error.
///
/// ```
/// use ratelimit_core::Problem;
///
/// assert_eq!(Problem::NoClient.status(), 500);
/// assert!(Problem::NoClient.to_json().starts_with(b"{\"type\":\"about:blank\""));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Problem<'a> {
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
    BadKey,
    /// The request names more than one key: 400.
    AmbiguousKey,
    /// The service is not set up to know its clients: 500.
    NoClient,
    /// The service gave a limit nothing to count by: 500.
    NotSetUp,
}

impl Problem<'_> {
    /// The type of the body.
    pub const CONTENT_TYPE: &'static str = "application/problem+json";

    /// The status code.
    pub const fn status(&self) -> u16 {
        match self {
            Problem::Denied { .. } | Problem::Blocked => 429,
            Problem::Forbidden => 403,
            Problem::Unavailable => 503,
            Problem::BadKey | Problem::AmbiguousKey => 400,
            Problem::NoClient | Problem::NotSetUp => 500,
        }
    }

    /// The status of gRPC that means the same.
    pub const fn grpc_status(&self) -> u8 {
        match self {
            Problem::Denied { .. } | Problem::Blocked => 8,
            Problem::Forbidden => 7,
            Problem::Unavailable => 14,
            Problem::BadKey | Problem::AmbiguousKey => 3,
            Problem::NoClient | Problem::NotSetUp => 13,
        }
    }

    /// What is the matter, in a few words of ASCII.
    pub const fn title(&self) -> &'static str {
        match self {
            Problem::Denied { .. } => "Rate limit exceeded",
            Problem::Forbidden => "Forbidden",
            Problem::Blocked => "Too many requests",
            Problem::Unavailable => "Rate limiting is unavailable",
            Problem::BadKey => "The rate limit key is missing or malformed",
            Problem::AmbiguousKey => "The rate limit key was sent more than once",
            Problem::NoClient => "The client is unknown",
            Problem::NotSetUp => "The rate limit is not set up",
        }
    }

    /// The seconds of `Retry-After`, where waiting can help.
    pub fn retry_after_secs(&self) -> Option<u64> {
        match self {
            Problem::Denied { decision, .. } => retry_after_secs(decision),
            Problem::Unavailable => Some(1),
            _ => None,
        }
    }

    /// The body.
    pub fn to_json(&self) -> Vec<u8> {
        let mut body = Body::new();
        body.push(br#"{"type":""#);
        body.push(match self {
            // The type that draft-ietf-httpapi-ratelimit-headers registers.
            Problem::Denied { .. } => {
                b"https://iana.org/assignments/http-problem-types#quota-exceeded"
            }
            _ => b"about:blank",
        });
        body.push(br#"","title":""#);
        body.push(self.title().as_bytes());
        body.push(br#"","status":"#);
        body.push_number(self.status().into());
        if let Problem::Denied { policy, decision } = *self {
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
