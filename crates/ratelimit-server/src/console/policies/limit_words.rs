//! Limits as plain sentences.

use std::time::Duration;

use ratelimit_core::Limit;

/// The sentence about a limit: `5 at once, then one every 12 s`.
///
/// Every number in it is exact. A rate whose interval is not a whole number of microseconds is a number of units in a
/// period.
pub(super) fn limit_words(limit: &Limit) -> String {
    let capacity = limit.capacity();
    match limit {
        Limit::TokenBucket(_) => format!("{capacity} at once, then {}", pace(limit)),
        Limit::LeakyBucket(bucket) if bucket.is_policing() => {
            format!("{capacity} at once, then {}, none is delayed", pace(limit))
        }
        Limit::LeakyBucket(_) => {
            let places = counted(capacity, "place", "places");
            format!("a queue of {places}, which lets {} pass", pace(limit))
        }
        Limit::FixedWindow(_) => {
            let period = span(limit.period());
            format!("{capacity} in each window of {period}, windows begin by the clock")
        }
        Limit::SlidingWindowLog(log) => {
            let denied = if log.counts_denied() {
                ", denied ones count as well"
            } else {
                ""
            };
            format!("{capacity} in any {}{denied}", span(limit.period()))
        }
        Limit::SlidingWindowCounter(_) => format!(
            "{capacity} in any {}, estimated from two windows",
            span(limit.period())
        ),
        Limit::Concurrency(slots) => format!(
            "{capacity} at the same time, each for {} at most unless it is renewed",
            span(slots.lease())
        ),
        Limit::PenaltyBox(penalty) => {
            let denials = counted(penalty.denials(), "denial", "denials");
            let (within, block) = (span(limit.period()), span(penalty.block_duration()));
            let verb = if penalty.denials() == 1 {
                "blocks"
            } else {
                "block"
            };
            let further = if penalty.is_doubling() {
                ", each further block is twice as long"
            } else {
                ""
            };
            format!("{denials} within {within} {verb} the key for {block}{further}")
        }
        // The enum may grow: the text of the limit is exact as well.
        other => other.to_string(),
    }
}

/// The pace of a bucket: `one every 12 s`, or `7 every 1 min` if an interval would not be exact.
fn pace(limit: &Limit) -> String {
    let (units, period) = (limit.per_period(), limit.period());
    let micros = period.as_micros();
    if micros % u128::from(units) == 0 {
        let each = u64::try_from(micros / u128::from(units)).unwrap_or(u64::MAX);
        return format!("one every {}", span(Duration::from_micros(each)));
    }
    format!("{units} every {} at an even pace", span(period))
}

fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// A length of time in the largest unit that gives a whole number: `12 s`, `15 min`.
fn span(span: Duration) -> String {
    const UNITS: [(&str, u128); 6] = [
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("min", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1_000),
        ("us", 1),
    ];
    let micros = span.as_micros();
    let unit = UNITS.iter().find(|(_, length)| micros % length == 0);
    let (name, length) = unit.unwrap_or(&("us", 1));
    format!("{} {name}", micros / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_told_in_exact_words() {
        for (text, words) in [
            ("5/min", "5 at once, then one every 12 s"),
            ("10/s burst 100", "100 at once, then one every 100 ms"),
            ("1/d", "1 at once, then one every 1 d"),
            ("7/min", "7 at once, then 7 every 1 min at an even pace"),
            (
                "3000000/s",
                "3000000 at once, then 3000000 every 1 s at an even pace",
            ),
            ("90/90min", "90 at once, then one every 1 min"),
            (
                "leaky_bucket 10/s queue 100",
                "a queue of 100 places, which lets one every 100 ms pass",
            ),
            (
                "leaky_bucket 1/min queue 1",
                "a queue of 1 place, which lets one every 1 min pass",
            ),
            (
                "leaky_bucket 10/s queue 5 police",
                "5 at once, then one every 100 ms, none is delayed",
            ),
            (
                "fixed_window 100/min",
                "100 in each window of 1 min, windows begin by the clock",
            ),
            ("sliding_window_log 100/90s", "100 in any 90 s"),
            (
                "sliding_window_log 9/h count-denied",
                "9 in any 1 h, denied ones count as well",
            ),
            (
                "sliding_window_counter 100/15min",
                "100 in any 15 min, estimated from two windows",
            ),
            (
                "concurrency 5 lease 30s",
                "5 at the same time, each for 30 s at most unless it is renewed",
            ),
            (
                "penalty_box 10/5min for 15min",
                "10 denials within 5 min block the key for 15 min",
            ),
            (
                "penalty_box 1/5min for 1h growing",
                "1 denial within 5 min blocks the key for 1 h, each further block is twice as long",
            ),
        ] {
            let limit: Limit = text.parse().unwrap();
            assert_eq!(limit_words(&limit), words, "{text}");
        }
    }
}
