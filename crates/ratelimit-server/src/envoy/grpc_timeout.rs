//! The header `grpc-timeout`: how long the caller of a gRPC method waits.

use std::time::{Duration, Instant};

use tonic::metadata::MetadataMap;

/// The time that is left for the answer to travel to the caller.
const ANSWER_TIME: Duration = Duration::from_millis(5);

/// The least time for a decision, for callers with hardly any patience.
const MIN_DECISION_TIME: Duration = Duration::from_millis(2);

/// The time until which a decision is of use to a caller whose call came at `received`; `None` if it waits forever.
pub(crate) fn decision_deadline(metadata: &MetadataMap, received: Instant) -> Option<Instant> {
    let timeout = parse(metadata.get("grpc-timeout")?.to_str().ok()?)?;
    let usable = timeout.saturating_sub(ANSWER_TIME).max(MIN_DECISION_TIME);
    received.checked_add(usable)
}

/// Parses one to eight digits and a unit, as in `20m` for 20 milliseconds.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || digits.len() > 8 {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 60 * 60)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time for a decision in milliseconds.
    fn usable(header: &'static str) -> Option<u128> {
        let received = Instant::now();
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", header.parse().expect("ASCII"));
        let deadline = decision_deadline(&metadata, received)?;
        Some(deadline.duration_since(received).as_millis())
    }

    #[test]
    fn the_answer_has_five_milliseconds_to_travel() {
        for (header, expected) in [
            ("20m", 15),
            ("100000u", 95),
            ("2S", 1_995),
            ("1M", 59_995),
            ("1H", 3_599_995),
            ("50000000n", 45),
            ("6m", 2),
            ("1m", 2),
            ("0n", 2),
        ] {
            assert_eq!(usable(header), Some(expected), "{header}");
        }
    }

    #[test]
    fn a_malformed_timeout_is_none() {
        for header in [
            "",
            "m",
            "20",
            "20x",
            "-1m",
            "+1m",
            "123456789m",
            "1.5S",
            "2 S",
        ] {
            assert_eq!(usable(header), None, "{header}");
        }
        assert_eq!(decision_deadline(&MetadataMap::new(), Instant::now()), None);
    }
}
