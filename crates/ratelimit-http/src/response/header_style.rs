//! The header fields that report a decision.

use std::time::Duration;

use crate::response::text::{HeaderText, TextBuffer, parse_number, strictest_member};
use ratelimit_core::{Decision, Limit, Outcome, Policy};

/// The header fields that report the remaining budget.
///
/// | style | fields | reset |
/// |---|---|---|
/// | `XRateLimit` | `X-RateLimit-Limit`, `-Remaining`, `-Reset` | Unix time in seconds |
/// | `XRateLimitDelta` | the same | seconds from now |
/// | `RateLimit` | `RateLimit-Limit`, `-Remaining`, `-Reset` | seconds from now |
/// | `Ietf` | `RateLimit`, `RateLimit-Policy` | seconds from now |
/// | `None` | none | |
///
/// `Ietf` lists every limit of a policy. The other styles report one limit: the denying one with the
/// longest wait, or, if all allow, the one with the least remaining.
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
#[doc(alias("X-RateLimit-Remaining", "RateLimit-Policy"))]
pub enum HeaderStyle {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in Unix seconds.
    #[default]
    XRateLimit,
    /// The same names, with `-Reset` in seconds from now.
    XRateLimitDelta,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds from now.
    RateLimit,
    /// `RateLimit` of draft-ietf-httpapi-ratelimit-headers. Layers add `RateLimit-Policy` with
    /// the value of [`ratelimit_policy_value`].
    Ietf,
    /// No fields.
    None,
}

impl HeaderStyle {
    /// The names of the fields, in lower case.
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

    /// The fields for a decision under the policy called `policy`, one for each of the
    /// [`names`](Self::names).
    pub fn fields<'a>(
        self,
        policy: &'a str,
        decision: &'a Decision,
    ) -> impl Iterator<Item = (&'static str, HeaderText)> + 'a {
        let names = self.names().iter().enumerate();
        names.map(move |(index, name)| (*name, self.value(index, policy, decision)))
    }

    /// The value of the field at `index` of the [`names`](Self::names).
    pub fn value(self, index: usize, policy: &str, decision: &Decision) -> HeaderText {
        match (self, index) {
            (HeaderStyle::Ietf, _) => ratelimit_value(policy, decision),
            (_, 0) => HeaderText::number(decision.limit),
            (_, 1) => HeaderText::number(decision.remaining),
            _ => HeaderText::number(self.reset(decision)),
        }
    }

    /// Whether the fields that a response already has are at least as strict as `decision`.
    ///
    /// An inner layer may have written them. `existing` returns the value of a field by its lower-case
    /// name. Less remaining is stricter, then the later reset. If a field is missing or not a number, the
    /// existing fields are overwritten.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy};
    /// use ratelimit_http::response::HeaderStyle;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let policy = Policy::parse("api", "fixed_window 5/min")?;
    /// let verdict = Limiter::in_memory().check(&policy, &Key::new("alice")?).await;
    /// let decision = verdict.decision().expect("memory always decides");
    ///
    /// // An inner layer has 2 left, this decision has 4 left.
    /// let inner = |name: &str| Some(if name.ends_with("remaining") { &b"2"[..] } else { &b"60"[..] });
    /// assert!(HeaderStyle::RateLimit.existing_is_stricter(decision, inner));
    /// assert!(!HeaderStyle::RateLimit.existing_is_stricter(decision, |_| None));
    /// # Ok(())
    /// # }
    /// ```
    pub fn existing_is_stricter<'v>(
        self,
        decision: &Decision,
        existing: impl Fn(&'static str) -> Option<&'v [u8]>,
    ) -> bool {
        let theirs = match self.names() {
            [limits] => existing(limits).and_then(strictest_member),
            [limit, remaining, reset] => existing(limit)
                .and_then(parse_number)
                .and(existing(remaining).and_then(parse_number))
                .zip(existing(reset).and_then(parse_number)),
            _ => return true,
        };
        let Some((their_remaining, their_reset)) = theirs else {
            return false;
        };
        let (remaining, reset) = (decision.remaining, self.reset(decision));
        their_remaining < remaining || (their_remaining == remaining && their_reset >= reset)
    }

    /// The number of the reset field, rounded up to whole seconds.
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

/// The seconds of `Retry-After`: rounded up, and at least 1.
///
/// After this wait the same request passes if no other request spends the budget first. The result is
/// `None` if the request is allowed, or if waiting cannot help because its cost exceeds the limit.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy};
/// use ratelimit_http::response::{retry_after_millis, retry_after_secs};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let (limiter, login) = (Limiter::in_memory(), Policy::parse("login", "1/h")?);
/// let alice = Key::new("alice")?;
/// limiter.check(&login, &alice).await;
/// let verdict = limiter.check(&login, &alice).await;
/// let decision = verdict.decision().expect("memory always decides");
/// assert_eq!(retry_after_secs(decision), Some(3600));
/// assert!(retry_after_millis(decision).is_some_and(|millis| millis <= 3_600_000));
/// # Ok(())
/// # }
/// ```
pub fn retry_after_secs(decision: &Decision) -> Option<u64> {
    decision
        .retry_after()
        .map(|wait| whole_seconds(wait).max(1))
}

/// The milliseconds of `grpc-retry-pushback-ms`: rounded up, and at least 1.
///
/// The result is `None` as in [`retry_after_secs`].
pub fn retry_after_millis(decision: &Decision) -> Option<u64> {
    let millis = |wait: Duration| wait.as_nanos().div_ceil(1_000_000);
    let wait = decision.retry_after()?;
    Some(u64::try_from(millis(wait)).unwrap_or(u64::MAX).max(1))
}

/// The value of `RateLimit-Policy`: the quota of each limit, and the seconds in which all of it is restored.
///
/// A policy with several limits names them `policy.1`, `policy.2` and so on.
///
/// ```
/// use ratelimit_core::Policy;
/// use ratelimit_http::response::ratelimit_policy_value;
///
/// let login = Policy::parse("login", "5/min; 10/s burst 100")?;
/// let field = ratelimit_policy_value(&login);
/// assert_eq!(field.as_bytes(), br#""login.1";q=5;w=60, "login.2";q=100;w=10"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn ratelimit_policy_value(policy: &Policy) -> HeaderText {
    policy_value(policy.name(), policy)
}

/// The value of `RateLimit-Policy` for a policy that is shown as `name`.
pub(crate) fn policy_value(name: &str, policy: &Policy) -> HeaderText {
    let limits = policy.limits();
    let names = LimitNames::new(name, limits.len());
    let mut field = TextBuffer::new();
    for (index, limit) in limits.iter().enumerate() {
        names.start_member(&mut field, index);
        field.push_parameter(";q=", limit.capacity());
        field.push_parameter(";w=", whole_seconds(window(limit)));
    }
    field.into()
}

/// The time after which a whole limit is available again; for a bucket, until it is full.
fn window(limit: &Limit) -> Duration {
    let nanos = limit.period().as_nanos() * u128::from(limit.capacity());
    let nanos = nanos.div_ceil(u128::from(limit.per_period().max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The value of `RateLimit`: the remaining quota of each limit, and the seconds until it is full.
pub(crate) fn ratelimit_value(policy: &str, decision: &Decision) -> HeaderText {
    let limits = decision.limits();
    let names = LimitNames::new(policy, limits.len());
    let mut field = TextBuffer::new();
    for (index, limit) in limits.enumerate() {
        names.start_member(&mut field, index);
        field.push_parameter(";r=", limit.remaining);
        field.push_parameter(";t=", whole_seconds(limit.reset_after));
    }
    field.into()
}

/// The names of a policy's limits: the policy's name, with a number if there are several.
pub(crate) struct LimitNames<'a> {
    policy: &'a str,
    is_numbered: bool,
}

impl<'a> LimitNames<'a> {
    /// The names of `limits` limits.
    pub(crate) const fn new(policy: &'a str, limits: usize) -> LimitNames<'a> {
        LimitNames {
            policy,
            is_numbered: limits > 1,
        }
    }

    /// Begins a member of a list: a comma if it is not the first, and the name.
    fn start_member<const N: usize>(&self, field: &mut TextBuffer<N>, index: usize) {
        if index > 0 {
            field.push(b", ");
        }
        self.quote(field, index);
    }

    /// Writes the name of the limit at `index` in quotes.
    pub(crate) fn quote<const N: usize>(&self, field: &mut TextBuffer<N>, index: usize) {
        field.push(b"\"");
        field.push_escaped(self.policy);
        if self.is_numbered {
            field.push(b".");
            field.push_number(index as u64 + 1);
        }
        field.push(b"\"");
    }
}

/// The indices of the limits that do not allow the hit.
pub(crate) fn violated(decision: &Decision) -> impl Iterator<Item = usize> + '_ {
    let limits = decision.limits().enumerate();
    limits
        .filter(|(_, limit)| !matches!(limit.outcome, Outcome::Allowed { .. }))
        .map(|(index, _)| index)
}

/// Whole seconds, rounded up.
fn whole_seconds(span: Duration) -> u64 {
    span.as_secs()
        .saturating_add(u64::from(span.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests;
