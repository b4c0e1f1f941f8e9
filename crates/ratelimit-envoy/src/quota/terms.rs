//! The limits of a policy as grants see them.

use std::time::Duration;

use ratelimit_core::{Algorithm, Limit, Policy, Timestamp};

/// How long a grant under a bucket or a log may live, from its charge to its end. It is the time by which a unit may be
/// used later than it was charged, so it is part of the documented bound.
pub(crate) const MAX_HOLD: Duration = Duration::from_secs(16);

/// The bucket of a limit must hold this much of its rate: grants are renewed by reports, which come every 5 seconds.
const MIN_BUCKET: Duration = Duration::from_secs(6);

/// The shortest window, counter or log that grants can carry.
const MIN_WINDOW: Duration = Duration::from_secs(10);

/// The times at which grants of a policy must end.
///
/// - A grant ends with the window of each `fixed_window` and `sliding_window_counter`.
/// - A grant under any other limit ends 16 seconds after its charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantTerms {
    /// The lengths of the windows.
    windows: Vec<Duration>,
    max_hold: Option<Duration>,
}

impl GrantTerms {
    /// The terms of a policy, that of the key's tier.
    pub fn new(policy: &Policy) -> GrantTerms {
        let (windows, others): (Vec<&Limit>, Vec<&Limit>) =
            policy.limits().iter().partition(|limit| is_window(limit));
        GrantTerms {
            windows: windows.into_iter().map(Limit::period).collect(),
            max_hold: (!others.is_empty()).then_some(MAX_HOLD),
        }
    }

    /// The end of the first window that ends after `now`, by the clock of the store.
    pub(crate) fn window_end(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.windows.iter().map(|period| {
            let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
            let passed = now.as_micros() / micros;
            Timestamp::from_micros((passed + 1).saturating_mul(micros))
        });
        ends.min()
    }

    /// The longest life of a grant that does not end with a window.
    pub(crate) const fn max_hold(&self) -> Option<Duration> {
        self.max_hold
    }

    /// Whether there is one window and nothing else, so that nothing needs to be given back after its end.
    pub(crate) fn is_restored_by_window(&self) -> bool {
        self.windows.len() == 1 && self.max_hold.is_none()
    }
}

fn is_window(limit: &Limit) -> bool {
    matches!(
        limit.algorithm(),
        Algorithm::FixedWindow | Algorithm::SlidingWindowCounter
    )
}

/// The reason why grants cannot carry a limit, if it is too fine.
pub(crate) fn too_fine(limit: &Limit) -> Option<String> {
    let micros = |span: Duration| span.as_micros();
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            // The capacity divided by the rate, without a division.
            let held = u128::from(limit.capacity()) * micros(limit.period());
            let needed = u128::from(limit.per_period()) * micros(MIN_BUCKET);
            (held < needed).then(|| {
                format!(
                    "{limit} holds less than 6 s of its rate, and Envoy reports every 5 s: raise burst or queue, or use an \
                     [[envoy.rule]]"
                )
            })
        }
        _ => (limit.period() < MIN_WINDOW).then(|| {
            format!(
                "{limit} is shorter than 10 s, and Envoy reports every 5 s: take a longer period, or use an [[envoy.rule]]"
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(limits: &str) -> GrantTerms {
        GrantTerms::new(&Policy::parse("api", limits).unwrap())
    }

    #[test]
    fn a_grant_ends_with_the_first_window() {
        let now = Timestamp::from_secs(125);
        let several = terms("fixed_window 60/20s; sliding_window_counter 900/h; 10/s burst 100");
        assert_eq!(several.window_end(now), Some(Timestamp::from_secs(140)));
        assert_eq!(several.max_hold(), Some(MAX_HOLD));
        assert!(!several.is_restored_by_window());

        assert_eq!(terms("100/min").window_end(now), None);
        let one = terms("fixed_window 60/20s");
        assert_eq!(one.max_hold(), None);
        assert!(one.is_restored_by_window());
        let edge = one.window_end(Timestamp::from_secs(140));
        assert_eq!(edge, Some(Timestamp::from_secs(160)));
    }

    #[test]
    fn limits_below_what_reports_can_renew_are_too_fine() {
        for (limit, expected) in [
            ("20/s burst 120", false),
            ("20/s burst 119", true),
            ("100/min", false),
            ("leaky_bucket 20/s queue 119 police", true),
            ("fixed_window 60/10s", false),
            ("fixed_window 60/9s", true),
            ("sliding_window_log 60/9s", true),
            ("sliding_window_counter 60/s", true),
        ] {
            let limit: Limit = limit.parse().unwrap();
            assert_eq!(too_fine(&limit).is_some(), expected, "{limit}");
        }
    }
}
