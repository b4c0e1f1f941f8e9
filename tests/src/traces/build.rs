//! What the core builds of a specification.

use std::time::Duration;

use ratelimit_core::{
    Concurrency, FixedWindow, LeakyBucket, Limit, PenaltyBox, Policy, SlidingWindowCounter,
    SlidingWindowLog, Throttle, TokenBucket,
};

use crate::model::Spec;

/// The limit that a specification describes, if it can be built.
pub fn to_limit(spec: &Spec) -> Option<Limit> {
    let period = Duration::from_micros(spec.period_us());
    match *spec {
        Spec::TokenBucket {
            capacity, refill, ..
        } => TokenBucket::new(capacity, refill, period)
            .map(Limit::from)
            .ok(),
        Spec::LeakyBucket {
            capacity,
            refill,
            police,
            ..
        } => LeakyBucket::new(capacity, refill, period)
            .map(|bucket| {
                if police {
                    bucket.without_delay()
                } else {
                    bucket
                }
                .into()
            })
            .ok(),
        Spec::FixedWindow { limit, .. } => FixedWindow::new(limit, period).map(Limit::from).ok(),
        Spec::SlidingWindowLog {
            limit,
            count_denied,
            ..
        } => SlidingWindowLog::new(limit, period)
            .map(|log| {
                if count_denied {
                    log.counting_denied()
                } else {
                    log
                }
                .into()
            })
            .ok(),
        Spec::SlidingWindowCounter { limit, .. } => SlidingWindowCounter::new(limit, period)
            .map(Limit::from)
            .ok(),
        Spec::Concurrency { limit, .. } => Concurrency::new(limit, period).map(Limit::from).ok(),
        Spec::PenaltyBox {
            denials,
            refusal_us,
            growing,
            ..
        } => PenaltyBox::new(denials, period, Duration::from_micros(refusal_us))
            .map(|penalty| if growing { penalty.doubling() } else { penalty }.into())
            .ok(),
    }
}

/// The policy of some limits.
///
/// # Panics
///
/// When a limit cannot be built.
pub fn to_policy(name: &str, limits: &[Spec]) -> Policy {
    let built = limits
        .iter()
        .map(|spec| to_limit(spec).expect("a valid limit"));
    Policy::from_limits(name, built).expect("a valid policy")
}

/// The policy of some limits, which lets so many percent more pass.
///
/// # Panics
///
/// When a limit cannot be built, or not with so much more.
pub fn to_soft_policy(name: &str, limits: &[Spec], percent: u64) -> Policy {
    let percent = u32::try_from(percent).expect("a valid percentage");
    let soft = to_policy(name, limits).with_throttle(Throttle::Soft { percent });
    soft.expect("a valid ceiling")
}
