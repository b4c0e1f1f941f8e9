//! Fields of hand-made decisions.

use super::*;
use crate::response::ProblemDetails;
use ratelimit_core::{LimitDecision, Timestamp};

fn limit(outcome: Outcome, remaining: u64, reset_millis: u64) -> LimitDecision {
    let mut decision = LimitDecision::new(outcome, 5);
    decision.remaining = remaining;
    decision.reset_after = Duration::from_millis(reset_millis);
    decision
}

fn at_100_7(limits: &[LimitDecision]) -> Decision {
    Decision::from_limits(Timestamp::from_micros(100_700_000), limits.iter().copied())
}

const PASSED: Outcome = Outcome::Allowed {
    delay: Duration::ZERO,
};

fn denied(millis: u64) -> Outcome {
    Outcome::Denied {
        retry_after: Duration::from_millis(millis),
    }
}

fn shown(style: HeaderStyle, decision: &Decision) -> Vec<String> {
    let show = |(name, value): (&str, HeaderText)| {
        format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
    };
    style.fields("login", decision).map(show).collect()
}

#[test]
fn a_reset_is_rounded_up_after_it_is_added() {
    let decision = at_100_7(&[limit(PASSED, 3, 400)]);

    let unix = shown(HeaderStyle::XRateLimit, &decision);
    let delta = shown(HeaderStyle::XRateLimitDelta, &decision);
    let plain = shown(HeaderStyle::RateLimit, &decision);

    assert_eq!(
        unix,
        [
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 3",
            "x-ratelimit-reset: 102"
        ]
    );
    assert_eq!(delta[2], "x-ratelimit-reset: 1");
    assert_eq!(
        plain,
        [
            "ratelimit-limit: 5",
            "ratelimit-remaining: 3",
            "ratelimit-reset: 1"
        ]
    );
    assert!(shown(HeaderStyle::None, &decision).is_empty());
}

#[test]
fn the_draft_has_a_member_for_each_limit() {
    let alone = at_100_7(&[limit(PASSED, 3, 29_001)]);
    let both = at_100_7(&[limit(PASSED, 3, 29_001), limit(PASSED, 1, 0)]);

    assert_eq!(
        shown(HeaderStyle::Ietf, &alone),
        [r#"ratelimit: "login";r=3;t=30"#]
    );
    assert_eq!(
        shown(HeaderStyle::Ietf, &both),
        [r#"ratelimit: "login.1";r=3;t=30, "login.2";r=1;t=0"#]
    );
}

#[test]
fn a_wait_is_whole_seconds_and_at_least_one() {
    let wait = |outcome| retry_after_secs(&at_100_7(&[limit(outcome, 0, 0)]));

    assert_eq!(wait(denied(0)), Some(1));
    assert_eq!(wait(denied(300)), Some(1));
    assert_eq!(wait(denied(1_000)), Some(1));
    assert_eq!(wait(denied(1_001)), Some(2));
    assert_eq!(wait(Outcome::Impossible), None);
}

#[test]
fn less_remaining_is_stricter_then_the_later_reset() {
    let decision = at_100_7(&[limit(PASSED, 3, 1_300)]);
    let stands = |style: HeaderStyle, values: [&'static str; 3]| {
        let index = |name| style.names().iter().position(|n| *n == name);
        style.existing_is_stricter(&decision, |name| Some(values[index(name)?].as_bytes()))
    };

    assert!(stands(HeaderStyle::XRateLimit, ["9", "2", "0"]));
    assert!(stands(HeaderStyle::XRateLimit, ["9", "3", "102"]));
    assert!(!stands(HeaderStyle::XRateLimit, ["9", "3", "101"]));
    assert!(!stands(HeaderStyle::XRateLimit, ["9", "4", "999"]));
    assert!(!stands(HeaderStyle::XRateLimit, ["9", "-1", "999"]));
    assert!(!stands(HeaderStyle::XRateLimit, ["", "1", "999"]));
    assert!(stands(
        HeaderStyle::Ietf,
        [r#""a,;r=9";r=4, "b\"";t=1;r=2"#, "", ""]
    ));
    assert!(!stands(HeaderStyle::Ietf, [r#""a";r=4;t=9"#, "", ""]));
    assert!(!stands(HeaderStyle::Ietf, [r#""a";t=9"#, "", ""]));
    assert!(!stands(HeaderStyle::Ietf, ["", "", ""]));
}

#[test]
fn a_problem_names_the_limits_that_denied() {
    let decision = at_100_7(&[limit(PASSED, 3, 0), limit(denied(1_500), 0, 1_500)]);
    let problem = ProblemDetails::Denied {
        policy: "login",
        decision: &decision,
    };

    let body = String::from_utf8(problem.to_json()).unwrap();

    assert_eq!(
        body,
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Rate limit exceeded","status":429,"detail":"Try again in 2 seconds.","#,
            r#""violated-policies":["login.2"]}"#
        )
    );
}

#[test]
fn no_number_is_larger_than_a_structured_integer() {
    let huge = Policy::parse("huge", "fixed_window 1000000000000000/s").unwrap();

    let field = ratelimit_policy_value(&huge);

    assert_eq!(field.as_bytes(), br#""huge";q=999999999999999;w=1"#);
}

#[test]
fn a_number_is_written_as_the_standard_library_does() {
    let edges = (0..20).flat_map(|power| {
        let ten = 10_u64.pow(power);
        [ten - 1, ten, ten + 1, ten / 2 * 3]
    });
    for number in edges.chain(0..1_000).chain([u64::MAX]) {
        assert_eq!(
            HeaderText::number(number).as_bytes(),
            number.to_string().as_bytes()
        );
    }
}
