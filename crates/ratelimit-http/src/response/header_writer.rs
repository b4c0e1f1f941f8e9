//! Turns what is to be told into the header fields of a response.

use std::time::Duration;

use crate::response::{
    header_style::{HeaderStyle, ratelimit_policy_value, ratelimit_value},
    text::{Digits, small_number},
};
use crate::{middleware::Framework, response::report::LimitReport};
use ratelimit_core::{Decision, Limit, Policy};

const RETRY_AFTER: &str = "retry-after";
const RATELIMIT_POLICY: &str = "ratelimit-policy";
const EXPOSE: &str = "access-control-expose-headers";
const OVER: &str = "x-ratelimit-over";
const SHADOW: &str = "x-ratelimit-shadow";
pub(crate) const GRPC_RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// What is written into each response, prepared when the settings are made.
#[derive(Clone, Debug)]
pub struct HeaderWriter<F: Framework> {
    style: HeaderStyle,
    names: Box<[F::Name]>,
    limits: Box<[(u64, F::Value)]>,
    policy: Option<(F::Name, F::Value)>,
    exposed: Option<(F::Name, F::Value)>,
    marks: Option<Marks<F>>,
}

/// Fields that mark a response whose request passed beyond a limit, or would not have passed.
#[derive(Clone, Debug)]
struct Marks<F: Framework> {
    over: (F::Name, F::Value),
    shadow: (F::Name, F::Value),
}

impl<F: Framework> HeaderWriter<F> {
    pub(crate) fn new(style: HeaderStyle, policy: &Policy) -> HeaderWriter<F> {
        let names = style.names().iter();
        let limits = policy.limits().iter().map(Limit::capacity);
        let described = || (F::name(RATELIMIT_POLICY), describe::<F>(policy));
        HeaderWriter {
            style,
            limits: limits.map(|limit| (limit, number::<F>(limit))).collect(),
            names: names.map(|name| F::name(name)).collect(),
            policy: (style == HeaderStyle::Ietf).then(described),
            exposed: None,
            marks: None,
        }
    }

    /// The same fields for another policy.
    pub(crate) fn with_policy(&self, policy: &Policy) -> HeaderWriter<F> {
        self.with_style(self.style, policy)
    }

    /// The same policy in another style.
    pub(crate) fn with_style(&self, style: HeaderStyle, policy: &Policy) -> HeaderWriter<F> {
        let mut fields = HeaderWriter::new(style, policy);
        fields.marks.clone_from(&self.marks);
        match self.exposed {
            Some(_) => fields.with_exposed(),
            None => fields,
        }
    }

    /// Lets scripts of other origins read the fields.
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

    /// Marks what passed beyond a limit, or would not have passed.
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

    /// Tells it in the fields of a response, unless they say something stricter already; of a decision
    /// that only watches, no more than a mark.
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
            let described = report.tier.map(describe::<F>);
            F::insert(map, name, described.unwrap_or_else(|| policy.clone()));
        }
    }

    /// The limit or, in a style that lists all limits, the list.
    fn first(&self, report: &LimitReport<'_>) -> F::Value {
        match self.style {
            HeaderStyle::Ietf => {
                let list = ratelimit_value(report.policy.name(), report.decision);
                F::value(list.as_bytes())
            }
            _ => self.limit(report.decision.limit),
        }
    }

    /// The limit is the same in most answers, and its value was made with the settings.
    fn limit(&self, limit: u64) -> F::Value {
        let mut limits = self.limits.iter();
        match limits.find(|(known, _)| *known == limit) {
            Some((_, value)) => value.clone(),
            None => number::<F>(limit),
        }
    }

    fn reset(&self, decision: &Decision) -> F::Value {
        let reset = self.style.reset(decision);
        match self.style {
            HeaderStyle::XRateLimit => F::moment(reset),
            _ => number::<F>(reset),
        }
    }

    fn keeps_existing(&self, decision: &Decision, map: &F::Map) -> bool {
        let existing = |name| single::<F>(map, &F::name(name));
        // An inner layer that refused has the last word, however much the outer one has left.
        is_refusal::<F>(map) || self.style.existing_is_stricter(decision, existing)
    }

    #[inline]
    fn expose(&self, map: &mut F::Map) {
        if let Some((name, value)) = &self.exposed {
            expose::<F>(name, value, map);
        }
    }
}

/// Whether a layer further in refused the request.
pub fn is_refusal<F: Framework>(map: &F::Map) -> bool {
    F::contains(map, &F::RETRY_AFTER) || F::contains(map, &F::name(GRPC_RETRY_PUSHBACK))
}

/// Adds `value` to `Access-Control-Expose-Headers`, unless it is there.
fn expose<F: Framework>(name: &F::Name, value: &F::Value, map: &mut F::Map) {
    if F::lines(map, name).all(|line| line != F::bytes(value)) {
        F::append(map, name, value.clone());
    }
}

/// Sets `Retry-After`, unless it already tells to wait as long, or until a date.
pub(crate) fn retry_after<F: Framework>(seconds: u64, map: &mut F::Map) {
    let told = F::lines(map, &F::RETRY_AFTER).next();
    let told = told.filter(|told| told.is_ascii());
    let stands = told.is_some_and(|told| parse(told).is_none_or(|told| told >= seconds));
    if !stands {
        F::insert(map, &F::RETRY_AFTER, number::<F>(seconds));
    }
}

fn parse(seconds: &[u8]) -> Option<u64> {
    str::from_utf8(seconds).ok()?.parse().ok()
}

#[inline]
pub(crate) fn number<F: Framework>(number: u64) -> F::Value {
    match small_number(number) {
        Some(digits) => F::constant(digits),
        None => F::value(Digits::of(number).as_bytes()),
    }
}

fn single<'a, F: Framework>(map: &'a F::Map, name: &F::Name) -> Option<&'a [u8]> {
    let mut lines = F::lines(map, name);
    let value = lines.next()?;
    lines.next().is_none().then_some(value)
}

fn describe<F: Framework>(policy: &Policy) -> F::Value {
    let limits = policy.limits().iter();
    let limits = limits.map(|limit| (limit.capacity(), window(limit)));
    F::value(ratelimit_policy_value(policy.name(), limits).as_bytes())
}

/// The time in which all of a limit comes back: of a bucket, until it is full.
fn window(limit: &Limit) -> Duration {
    let nanos = limit.period().as_nanos() * u128::from(limit.capacity());
    let nanos = nanos.div_ceil(u128::from(limit.per_period().max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
