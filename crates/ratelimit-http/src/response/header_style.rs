//! Decisions as header fields, over bytes and integers.

use std::time::Duration;

use crate::response::text::{HeaderText, TextBuffer, parse, strictest_member};
use ratelimit_core::{Decision, Outcome};

/// In which header fields a response tells what is left of a budget.
///
/// ```
/// use ratelimit_http::response::HeaderStyle;
/// use ratelimit_core::{Key, Limiter, Policy};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let login = Policy::parse("login", "fixed_window 5/min")?;
/// let verdict = Limiter::in_memory().check(&login, &Key::new("alice")?).await;
/// let decision = verdict.decision().expect("memory always decides");
///
/// let mut fields = HeaderStyle::XRateLimit.fields("login", decision);
/// let (name, value) = fields.next().expect("the first of three");
/// assert_eq!((name, value.as_bytes()), ("x-ratelimit-limit", &b"5"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in Unix seconds.
    #[default]
    XRateLimit,
    /// The same names, with the seconds to wait in `-Reset`.
    XRateLimitDelta,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds to wait.
    RateLimit,
    /// `RateLimit` of draft-ietf-httpapi-ratelimit-headers; `RateLimit-Policy` is
    /// [`ratelimit_policy_value`].
    Ietf,
    /// No fields.
    None,
}

impl HeaderStyle {
    /// The names of its fields, in lower case.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            HeaderStyle::XRateLimit | HeaderStyle::XRateLimitDelta => &[
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
            ],
            HeaderStyle::RateLimit => {
                &["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"]
            }
            HeaderStyle::Ietf => &["ratelimit"],
            HeaderStyle::None => &[],
        }
    }

    /// The fields for a decision under the policy of that name, one for each of its
    /// [`names`](Self::names).
    pub fn fields<'a>(
        self,
        policy: &'a str,
        decision: &'a Decision,
    ) -> impl Iterator<Item = (&'static str, HeaderText)> + 'a {
        let names = self.names().iter().enumerate();
        names.map(move |(place, name)| (*name, self.value(place, policy, decision)))
    }

    /// The value of the field at that place of its [`names`](Self::names).
    pub fn value(self, place: usize, policy: &str, decision: &Decision) -> HeaderText {
        match (self, place) {
            (HeaderStyle::Ietf, _) => ratelimit_value(policy, decision),
            (_, 0) => HeaderText::number(decision.limit),
            (_, 1) => HeaderText::number(decision.remaining),
            _ => HeaderText::number(self.reset(decision)),
        }
    }

    /// Whether what a response already says is at least as strict as `decision`.
    ///
    /// `existing` gives the value of a field by its lower-case name. Less remaining is stricter,
    /// then the later reset. Fields of which one is missing or no number do not stand.
    pub fn existing_is_stricter<'v>(
        self,
        decision: &Decision,
        existing: impl Fn(&'static str) -> Option<&'v [u8]>,
    ) -> bool {
        let theirs = match self.names() {
            [limits] => existing(limits).and_then(strictest_member),
            [limit, remaining, reset] => existing(limit)
                .and_then(parse)
                .and(existing(remaining).and_then(parse))
                .zip(existing(reset).and_then(parse)),
            _ => return true,
        };
        let Some((their_remaining, their_reset)) = theirs else {
            return false;
        };
        let (remaining, reset) = (decision.remaining, self.reset(decision));
        their_remaining < remaining || (their_remaining == remaining && their_reset >= reset)
    }

    /// What the field of the reset tells.
    pub(crate) fn reset(self, decision: &Decision) -> u64 {
        match self {
            HeaderStyle::XRateLimit => {
                let reset = decision.now + decision.reset_after;
                reset.as_micros().div_ceil(1_000_000)
            }
            _ => whole_seconds(decision.reset_after),
        }
    }
}

/// The seconds of `Retry-After`: rounded up, at least 1; nothing when waiting cannot help.
///
/// Whoever waits that long passes, if nobody else comes first.
pub fn retry_after_secs(decision: &Decision) -> Option<u64> {
    decision
        .retry_after()
        .map(|wait| whole_seconds(wait).max(1))
}

/// The milliseconds of `grpc-retry-pushback-ms`: rounded up, at least 1; nothing when waiting
/// cannot help.
pub fn retry_after_millis(decision: &Decision) -> Option<u64> {
    let millis = |wait: Duration| wait.as_nanos().div_ceil(1_000_000);
    let wait = decision.retry_after()?;
    Some(u64::try_from(millis(wait)).unwrap_or(u64::MAX).max(1))
}

/// The value of `RateLimit-Policy`: for each limit of the policy, what it allows in how long.
///
/// ```
/// use ratelimit_http::response::ratelimit_policy_value;
/// use std::time::Duration;
///
/// let field = ratelimit_policy_value("login", [(5, Duration::from_secs(60))]);
/// assert_eq!(field.as_bytes(), br#""login";q=5;w=60"#);
/// ```
pub fn ratelimit_policy_value<I>(policy: &str, limits: I) -> HeaderText
where
    I: IntoIterator<Item = (u64, Duration), IntoIter: ExactSizeIterator>,
{
    let limits = limits.into_iter();
    let names = Names::new(policy, limits.len());
    let mut field = TextBuffer::new();
    for (place, (quota, window)) in limits.enumerate() {
        names.start_member(&mut field, place);
        field.push_parameter(";q=", quota);
        field.push_parameter(";w=", whole_seconds(window));
    }
    field.into()
}

/// The value of `RateLimit`: for each limit of the policy, what is left for how long.
pub(crate) fn ratelimit_value(policy: &str, decision: &Decision) -> HeaderText {
    let limits = decision.limits();
    let names = Names::new(policy, limits.len());
    let mut field = TextBuffer::new();
    for (place, limit) in limits.enumerate() {
        names.start_member(&mut field, place);
        field.push_parameter(";r=", limit.remaining);
        field.push_parameter(";t=", whole_seconds(limit.reset_after));
    }
    field.into()
}

/// What the limits of a policy are called: one by the policy's name, several also by place.
pub(crate) struct Names<'a> {
    policy: &'a str,
    several: bool,
}

impl<'a> Names<'a> {
    pub(crate) const fn new(policy: &'a str, limits: usize) -> Names<'a> {
        Names {
            policy,
            several: limits > 1,
        }
    }

    fn start_member<const N: usize>(&self, field: &mut TextBuffer<N>, place: usize) {
        if place > 0 {
            field.push(b", ");
        }
        self.quote(field, place);
    }

    pub(crate) fn quote<const N: usize>(&self, field: &mut TextBuffer<N>, place: usize) {
        field.push(b"\"");
        field.push_escaped(self.policy);
        if self.several {
            field.push(b".");
            field.push_number(place as u64 + 1);
        }
        field.push(b"\"");
    }
}

/// Which limits of the policy did not let the hit pass, by place.
pub(crate) fn violated(decision: &Decision) -> impl Iterator<Item = usize> + '_ {
    let limits = decision.limits().enumerate();
    limits
        .filter(|(_, limit)| !matches!(limit.outcome, Outcome::Allowed { .. }))
        .map(|(place, _)| place)
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_secs()
        .saturating_add(u64::from(span.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests;
