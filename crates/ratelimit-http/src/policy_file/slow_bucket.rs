//! Warnings about token buckets that look like quotas.

use std::time::Duration;

use ratelimit_core::{Algorithm, Limit, Policy};

use crate::policy_file::{code::DiagnosticCode, diagnostic::Diagnostics};

/// The shortest period of a quota.
const MIN_PERIOD: Duration = Duration::from_secs(3_600);

/// Reports each token bucket that refills over an hour or more.
///
/// `1000/d` reads like a quota. A bucket begins full and refills all day, so nearly twice as much passes on the first day.
/// A burst below the number per period is a choice, and not reported.
pub(crate) fn report_slow_buckets(policy: &Policy, line: usize, diagnostics: &mut Diagnostics) {
    for message in slow_bucket_warnings(policy) {
        diagnostics.add(DiagnosticCode::SlowBucket, line, message);
    }
}

/// The warnings about token buckets of a policy that look like quotas, for policies that are not in a file.
///
/// [`PolicyFile::parse`](crate::policy_file::PolicyFile::parse) has them among its diagnostics.
///
/// ```
/// use ratelimit_core::Policy;
/// use ratelimit_http::policy_file::slow_bucket_warnings;
///
/// let warnings = slow_bucket_warnings(&Policy::parse("api", "10/s; 1000/d")?);
/// assert!(warnings[0].contains("fixed_window 1000/d"));
/// # Ok::<(), ratelimit_core::InvalidPolicy>(())
/// ```
pub fn slow_bucket_warnings(policy: &Policy) -> Vec<String> {
    let limits = policy.limits().iter().enumerate();
    let warnings = limits.filter_map(|(index, limit)| warning(limit, policy.key_name(index)));
    warnings.collect()
}

/// The warning about a token bucket that looks like a quota.
fn warning(limit: &Limit, by: Option<&str>) -> Option<String> {
    let (count, capacity) = (limit.per_period(), limit.capacity());
    let is_slow = limit.algorithm() == Algorithm::TokenBucket && limit.period() >= MIN_PERIOD;
    // A bucket of one unit is exact: it passes one in each period.
    if !is_slow || capacity < count || capacity == 1 {
        return None;
    }
    let text = limit.to_string();
    let (_, rate) = text.split_once(' ')?;
    let rate = rate.split(' ').next()?;
    let (_, period) = rate.split_once('/')?;
    let one = if period.starts_with(|first: char| first.is_ascii_digit()) {
        ""
    } else {
        "1"
    };
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    let most = capacity.saturating_add(count) - 1;
    Some(format!(
        "{limit} is a token bucket: it refills all the time, so up to {most} pass within {one}{period}; \
         write \"fixed_window {rate}{by}\" or \"sliding_window_counter {rate}{by}\" for at most {count} in each {one}{period}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(limits: &str) -> Vec<String> {
        let policy = Policy::parse("api", limits).unwrap();
        let mut diagnostics = Diagnostics::new();
        report_slow_buckets(&policy, 1, &mut diagnostics);
        let found = diagnostics.sorted().into_iter();
        found.map(|diagnostic| diagnostic.message).collect()
    }

    #[test]
    fn a_bucket_that_refills_over_an_hour_or_more_gets_the_limits_to_write_instead() {
        for (limits, most, instead) in [
            ("1000/d", "up to 1999 pass within 1d", "fixed_window 1000/d"),
            (
                "20/h",
                "up to 39 pass within 1h",
                "sliding_window_counter 20/h",
            ),
            ("5/min; 20/h by ip", "up to 39", "fixed_window 20/h by ip"),
            (
                "10/2h burst 100",
                "up to 109 pass within 2h",
                "fixed_window 10/2h",
            ),
        ] {
            let found = codes(limits);
            assert_eq!(found.len(), 1, "{limits}: {found:?}");
            assert!(found[0].contains(most), "{}", found[0]);
            assert!(found[0].contains(instead), "{}", found[0]);
            // The limit that the warning recommends causes no warning.
            let advice: Vec<&str> = found[0].split('"').skip(1).step_by(2).collect();
            for advice in advice {
                assert_eq!(codes(advice), [""; 0], "{advice}");
            }
        }
    }

    #[test]
    fn other_limits_are_no_quotas_or_are_exact() {
        for limits in [
            "100/min",
            "1/h",
            "1000/d burst 10",
            "fixed_window 1000/d",
            "sliding_window_log 20/h",
            "leaky_bucket 20/h queue 5",
            "10/s; penalty_box 10/h for 1d",
        ] {
            assert_eq!(codes(limits), [""; 0], "{limits}");
        }
    }
}
