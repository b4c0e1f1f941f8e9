//! Turns a decision into headers.

use std::time::Duration;

use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ratelimit_core::{Decision, FieldValue, HeaderStyle, Limit, Policy, policy_field};

static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) static GRPC_RETRY_PUSHBACK: HeaderName =
    HeaderName::from_static("grpc-retry-pushback-ms");

/// What a layer writes into each response, prepared when the middleware is made.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    style: HeaderStyle,
    names: Box<[HeaderName]>,
    limits: Box<[(u64, HeaderValue)]>,
    policy: Option<HeaderValue>,
}

impl Headers {
    pub(crate) fn new(style: HeaderStyle, policy: &Policy) -> Headers {
        let names = style.names().iter();
        let limits = policy.limits().iter().map(Limit::limit);
        Headers {
            style,
            limits: limits.map(|limit| (limit, number(limit))).collect(),
            names: names.map(|name| HeaderName::from_static(name)).collect(),
            policy: (style == HeaderStyle::Ietf).then(|| describe(policy)),
        }
    }

    pub(crate) const fn style(&self) -> HeaderStyle {
        self.style
    }

    /// Tells `decision` in the fields of a response, unless they say something stricter already.
    pub(crate) fn write(&self, policy: &Policy, decision: &Decision, headers: &mut HeaderMap) {
        let Some(first) = self.names.first() else {
            return;
        };
        if headers.contains_key(first) && self.stand(decision, headers) {
            return;
        }
        for (place, name) in self.names.iter().enumerate() {
            let value = self.value(place, policy, decision);
            headers.insert(name.clone(), value);
        }
        if let Some(policy) = &self.policy {
            headers.insert(RATELIMIT_POLICY.clone(), policy.clone());
        }
    }

    fn value(&self, place: usize, policy: &Policy, decision: &Decision) -> HeaderValue {
        // The limit is the same in most answers, and its value was made with the middleware.
        if place == 0 && self.style != HeaderStyle::Ietf {
            let mut limits = self.limits.iter();
            if let Some((_, value)) = limits.find(|(limit, _)| *limit == decision.limit) {
                return value.clone();
            }
        }
        value(&self.style.value(place, policy.name(), decision))
    }

    fn stand(&self, decision: &Decision, headers: &HeaderMap) -> bool {
        // An inner layer that refused has the last word, however much the outer one has left.
        is_refusal(headers) || self.style.stands(decision, |name| single(headers, name))
    }

    /// The names that a script of another origin may want to read.
    pub(crate) fn exposed(&self) -> HeaderValue {
        let mut names = vec![header::RETRY_AFTER.as_str()];
        names.extend(self.names.iter().map(HeaderName::as_str));
        names.extend(self.policy.as_ref().map(|_| RATELIMIT_POLICY.as_str()));
        HeaderValue::from_str(&names.join(", ")).expect("names are visible ASCII")
    }
}

/// Whether a layer further in refused the request.
pub(crate) fn is_refusal(headers: &HeaderMap) -> bool {
    headers.contains_key(header::RETRY_AFTER) || headers.contains_key(&GRPC_RETRY_PUSHBACK)
}

/// Adds `exposed` to `Access-Control-Expose-Headers`, unless it is there.
pub(crate) fn expose(exposed: &HeaderValue, headers: &mut HeaderMap) {
    let name = header::ACCESS_CONTROL_EXPOSE_HEADERS;
    if headers.get_all(&name).all(|line| line != exposed) {
        headers.append(name, exposed.clone());
    }
}

/// Sets `Retry-After`, unless it already tells to wait as long, or until a date.
pub(crate) fn retry_after(seconds: u64, headers: &mut HeaderMap) {
    let told = headers.get(header::RETRY_AFTER);
    let stands = told.is_some_and(|told| {
        let told = told.to_str().ok().map(str::parse::<u64>);
        told.is_some_and(|told| told.map_or(true, |told| told >= seconds))
    });
    if !stands {
        headers.insert(header::RETRY_AFTER, number(seconds));
    }
}

pub(crate) fn number(number: u64) -> HeaderValue {
    value(&FieldValue::number(number))
}

fn value(field: &FieldValue) -> HeaderValue {
    HeaderValue::from_bytes(field.as_bytes()).expect("fields are visible ASCII")
}

fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let mut lines = headers.get_all(name);
    let value = lines.next()?;
    lines.next().is_none().then_some(value.as_bytes())
}

fn describe(policy: &Policy) -> HeaderValue {
    let limits = policy.limits().iter();
    value(&policy_field(
        policy.name(),
        limits.map(|limit| (limit.limit(), window(limit))),
    ))
}

/// The time in which all of a limit comes back: of a bucket, until it is full.
fn window(limit: &Limit) -> Duration {
    let nanos = limit.period().as_nanos() * u128::from(limit.limit());
    let nanos = nanos.div_ceil(u128::from(limit.per_period().max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
