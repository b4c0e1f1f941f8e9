//! What the core builds of a specification.

use std::time::Duration;

use ratelimit_core::{
    FixedWindow, LeakyBucket, Limit, Policy, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
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
            .map(|bucket| if police { bucket.police() } else { bucket }.into())
            .ok(),
        Spec::FixedWindow { limit, .. } => FixedWindow::new(limit, period).map(Limit::from).ok(),
        Spec::SlidingWindowLog {
            limit,
            count_denied,
            ..
        } => SlidingWindowLog::new(limit, period)
            .map(|log| {
                if count_denied {
                    log.count_denied()
                } else {
                    log
                }
                .into()
            })
            .ok(),
        Spec::SlidingWindowCounter { limit, .. } => SlidingWindowCounter::new(limit, period)
            .map(Limit::from)
            .ok(),
        // The core has neither of them.
        Spec::Concurrency { .. } | Spec::PenaltyBox { .. } => None,
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
    Policy::of(name, built).expect("a valid policy")
}
