//! Writing of header fields into responses.

use crate::response::{
    header_style::{HeaderStyle, policy_value, ratelimit_value},
    text::parse_number,
};
use crate::{framework::Framework, response::report::LimitReport, small_number::small_number};
use ratelimit_core::{Decision, Limit, Policy};

const RETRY_AFTER: &str = "retry-after";
const RATELIMIT_POLICY: &str = "ratelimit-policy";
const EXPOSE: &str = "access-control-expose-headers";
/// `true` if the request exceeded a soft limit and passed.
const OVER: &str = "x-ratelimit-over";
/// `denied` if a policy in shadow mode would have denied the request.
const SHADOW: &str = "x-ratelimit-shadow";
/// The milliseconds after which a gRPC client may retry; negative if it must not.
pub(crate) const GRPC_RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Writes the header fields of a layer into responses.
///
/// - Names, limits and the value of `RateLimit-Policy` are made once per layer and cloned per response.
/// - If nested layers write the same fields, the stricter report stays. A rejection by an inner layer
///   always stays.
/// - Decisions in shadow mode are not reported, except by the marks.
/// - `Access-Control-Expose-Headers` is extended, not replaced.
#[derive(Clone, Debug)]
pub struct HeaderWriter<F: Framework> {
    style: HeaderStyle,
    names: Box<[F::Name]>,
    /// The capacities of the policy's limits as header values.
    limits: Box<[(u64, F::Value)]>,
    /// `RateLimit-Policy`, in the style that has it.
    policy: Option<(F::Name, F::Value)>,
    /// `Access-Control-Expose-Headers`.
    exposed: Option<(F::Name, F::Value)>,
    marks: Option<Marks<F>>,
}

/// The fields that mark responses to requests over a soft limit or denied in shadow mode.
#[derive(Clone, Debug)]
struct Marks<F: Framework> {
    over: (F::Name, F::Value),
    shadow: (F::Name, F::Value),
}

impl<F: Framework> HeaderWriter<F> {
    /// A writer of these fields for a policy.
    pub(crate) fn new(style: HeaderStyle, policy: &Policy) -> HeaderWriter<F> {
        let names = style.names().iter();
        let limits = policy.limits().iter().map(Limit::capacity);
        let described = || {
            (
                F::name(RATELIMIT_POLICY),
                describe::<F>(policy.name(), policy),
            )
        };
        HeaderWriter {
            style,
            limits: limits.map(|limit| (limit, number::<F>(limit))).collect(),
            names: names.map(|name| F::name(name)).collect(),
            policy: (style == HeaderStyle::Ietf).then(described),
            exposed: None,
            marks: None,
        }
    }

    /// The same settings for another policy.
    pub(crate) fn with_policy(&self, policy: &Policy) -> HeaderWriter<F> {
        self.with_style(self.style, policy)
    }

    /// The same settings in another style.
    pub(crate) fn with_style(&self, style: HeaderStyle, policy: &Policy) -> HeaderWriter<F> {
        let mut writer = HeaderWriter::new(style, policy);
        writer.marks.clone_from(&self.marks);
        match self.exposed {
            Some(_) => writer.with_exposed(),
            None => writer,
        }
    }

    /// Lists the fields in `Access-Control-Expose-Headers`.
    pub(crate) fn with_exposed(mut self) -> HeaderWriter<F> {
        let mut names = vec![RETRY_AFTER];
        names.extend(self.style.names());
        names.extend(self.policy.as_ref().map(|_| RATELIMIT_POLICY));
        if self.marks.is_some() {
            names.extend([OVER, SHADOW]);
        }
        let value = F::value(names.join(", ").as_bytes());
        self.exposed = Some((F::name(EXPOSE), value));
        self
    }

    /// Adds the marks.
    pub(crate) fn with_marks(mut self) -> HeaderWriter<F> {
        self.marks = Some(Marks {
            over: (F::name(OVER), F::constant("true")),
            shadow: (F::name(SHADOW), F::constant("denied")),
        });
        match self.exposed {
            Some(_) => self.with_exposed(),
            None => self,
        }
    }

    /// Writes a report into the headers of a response, unless they are stricter already.
    ///
    /// A decision in shadow mode writes at most a mark.
    #[inline]
    pub(crate) fn write_report(&self, report: &LimitReport<'_>, map: &mut F::Map) {
        if let Some(marks) = &self.marks {
            self.mark(marks, report.decision, map);
        }
        if self.style != HeaderStyle::None && report.has_numbers() {
            self.write(report, map);
            self.expose(map);
        }
    }

    /// Writes the marks.
    fn mark(&self, marks: &Marks<F>, decision: &Decision, map: &mut F::Map) {
        if decision.is_over {
            F::insert(map, &marks.over.0, marks.over.1.clone());
        }
        if !decision.is_enforced {
            if !decision.is_allowed() {
                F::insert(map, &marks.shadow.0, marks.shadow.1.clone());
            }
            self.expose(map);
        }
    }

    /// Writes the fields of the style.
    fn write(&self, report: &LimitReport<'_>, map: &mut F::Map) {
        let Some((first, others)) = self.names.split_first() else {
            return;
        };
        let decision = report.decision;
        let value = self.first(report);
        if let Err(value) = F::insert_new(map, first, value) {
            if self.keeps_existing(decision, map) {
                return;
            }
            F::insert(map, first, value);
        }
        if let [second, third] = others {
            F::insert(map, second, number::<F>(decision.remaining));
            F::insert(map, third, self.reset(decision));
        }
        if let Some((name, policy)) = &self.policy {
            let described = report
                .tier
                .map(|tier| describe::<F>(report.policy.name(), tier));
            F::insert(map, name, described.unwrap_or_else(|| policy.clone()));
        }
    }

    /// The value of the first field: the limit, or the list in the style that lists all limits.
    fn first(&self, report: &LimitReport<'_>) -> F::Value {
        match self.style {
            HeaderStyle::Ietf => {
                let list = ratelimit_value(report.policy.name(), report.decision);
                F::value(list.as_bytes())
            }
            _ => self.limit(report.decision.limit),
        }
    }

    /// The limit as a header value. It is the policy's own in most responses, and then cloned.
    fn limit(&self, limit: u64) -> F::Value {
        let mut limits = self.limits.iter();
        match limits.find(|(known, _)| *known == limit) {
            Some((_, value)) => value.clone(),
            None => number::<F>(limit),
        }
    }

    /// The value of the reset field.
    fn reset(&self, decision: &Decision) -> F::Value {
        let reset = self.style.reset(decision);
        match self.style {
            HeaderStyle::XRateLimit => F::moment(reset),
            _ => number::<F>(reset),
        }
    }

    /// Whether the fields that the response has stay.
    fn keeps_existing(&self, decision: &Decision, map: &F::Map) -> bool {
        let existing = |name| single::<F>(map, &F::name(name));
        // A rejection by an inner layer stays, however much budget this layer has left.
        is_refusal::<F>(map) || self.style.existing_is_stricter(decision, existing)
    }

    /// Lists the fields in `Access-Control-Expose-Headers`, if the layer exposes them.
    #[inline]
    fn expose(&self, map: &mut F::Map) {
        if let Some((name, value)) = &self.exposed {
            expose::<F>(name, value, map);
        }
    }
}

/// Whether an inner layer rejected the request.
///
/// A rejection has `Retry-After` or gRPC's `grpc-retry-pushback-ms`.
pub fn is_refusal<F: Framework>(map: &F::Map) -> bool {
    F::contains(map, &F::RETRY_AFTER) || F::contains(map, &F::name(GRPC_RETRY_PUSHBACK))
}

/// Appends `value` to `Access-Control-Expose-Headers` unless a line contains it already.
fn expose<F: Framework>(name: &F::Name, value: &F::Value, map: &mut F::Map) {
    if F::lines(map, name).all(|line| line != F::bytes(value)) {
        F::append(map, name, value.clone());
    }
}

/// Sets `Retry-After`, unless the response has one that is as long, or a date.
pub(crate) fn retry_after<F: Framework>(seconds: u64, map: &mut F::Map) {
    let existing = F::lines(map, &F::RETRY_AFTER).next();
    let is_date = |existing: &[u8]| {
        existing.is_ascii() && existing.first().is_some_and(u8::is_ascii_alphabetic)
    };
    let keeps_existing = existing.is_some_and(|existing| match parse_number(existing) {
        Some(wait) => wait >= seconds,
        None => is_date(existing),
    });
    if !keeps_existing {
        F::insert(map, &F::RETRY_AFTER, number::<F>(seconds));
    }
}

/// A number as a header value. Numbers below 1000 are not allocated.
#[inline]
pub(crate) fn number<F: Framework>(number: u64) -> F::Value {
    match small_number(number) {
        Some(digits) => F::constant(digits),
        None => F::value(itoa::Buffer::new().format(number).as_bytes()),
    }
}

/// The value of a field that has one line.
fn single<'a, F: Framework>(map: &'a F::Map, name: &F::Name) -> Option<&'a [u8]> {
    let mut lines = F::lines(map, name);
    let value = lines.next()?;
    lines.next().is_none().then_some(value)
}

/// The value of `RateLimit-Policy`.
fn describe<F: Framework>(name: &str, policy: &Policy) -> F::Value {
    F::value(policy_value(name, policy).as_bytes())
}
