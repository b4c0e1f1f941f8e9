//! Single steps of a bucket.

use std::time::Duration;

use ratelimit_core::{Policy, Timestamp};
use ratelimit_envoy::quota::{
    AnswerTime, Assignment, GrantTerms, OtherDemand, QuotaAction, QuotaBucket,
};

const ALONE: OtherDemand = OtherDemand {
    holders: 0,
    milli: 0,
};

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn bucket(limits: &str, now: Timestamp) -> QuotaBucket {
    let policy = Policy::parse("api", limits).unwrap();
    QuotaBucket::new(GrantTerms::new(&policy), true, now)
}

/// An answer of a store whose clock is that of the process.
fn answer(now: Timestamp) -> AnswerTime {
    AnswerTime {
        asked_at: now,
        answered_at: now,
        decided_at: now,
    }
}

/// Lets the store charge what the bucket wants, and returns what is sent.
fn grant(bucket: &mut QuotaBucket, now: Timestamp, remaining: u64) -> Vec<QuotaAction> {
    match bucket.looked(answer(now), remaining, ALONE) {
        Ok(units) => bucket.charged(answer(now), units).1,
        Err(actions) => actions,
    }
}

#[test]
fn a_grant_under_a_bucket_or_a_log_ends_16_seconds_after_its_charge() {
    for limits in [
        "100/min",
        "sliding_window_log 100/min",
        "fixed_window 9/h; 100/min",
    ] {
        let mut bucket = bucket(limits, at(1_000));
        bucket.report(at(1_000), 1, 0);
        let mut charged_at = at(1_000);
        let mut last = grant(&mut bucket, at(1_000), 100);
        let mut extensions = 0;
        for second in (1_005..1_050).step_by(5) {
            last = bucket.report(at(second), 0, 0);
            if last.contains(&QuotaAction::Look) {
                last = grant(&mut bucket, at(second), 100);
            }
            for action in &last {
                match action {
                    QuotaAction::Assign(Assignment::Grant { .. }) => charged_at = at(second),
                    QuotaAction::Assign(Assignment::Extension { ttl, .. }) => {
                        extensions += 1;
                        let life = (at(second) + *ttl).since(charged_at);
                        assert!(life <= Duration::from_secs(16), "{limits}: {life:?}");
                    }
                    _ => {}
                }
            }
        }
        assert!(extensions > 0 && !last.is_empty(), "{limits}");
    }
}

#[test]
fn a_window_is_extended_to_its_end_and_denied_before_it() {
    // The window ends at 1,020.
    let mut bucket = bucket("fixed_window 60/20s", at(1_001));
    bucket.report(at(1_001), 0, 1);
    let first = grant(&mut bucket, at(1_001), 60);
    assert!(
        matches!(first[..], [QuotaAction::Assign(Assignment::Grant { units: 15, ttl, .. })]
        if ttl == Duration::from_secs(8))
    );
    for (second, life) in [(1_006, 8), (1_011, 8)] {
        let extended = bucket.report(at(second), 1, 0);
        assert!(
            matches!(extended[..], [QuotaAction::Assign(Assignment::Extension { units: 15, ttl, .. })]
            if ttl == Duration::from_secs(life)),
            "{second}: {extended:?}"
        );
    }
    assert_eq!(
        bucket.report(at(1_016), 1, 0),
        [],
        "it lives to 1,019 already"
    );
    let before_the_end = bucket.wake_at().unwrap();
    assert_eq!(before_the_end, Timestamp::from_micros(1_018_500_000));

    assert_eq!(bucket.wake(before_the_end), [QuotaAction::Look]);
    let denied = grant(&mut bucket, before_the_end, 45);
    let ttl = Duration::from_secs(4);
    assert_eq!(denied, [QuotaAction::Assign(Assignment::DenyAll { ttl })]);
    assert_eq!(
        bucket.wake_at(),
        Some(at(1_020)),
        "the start of the next window"
    );
    assert_eq!(bucket.wake(at(1_020)), [QuotaAction::Look]);
    let next = grant(&mut bucket, at(1_020), 60);
    assert!(matches!(
        next[..],
        [QuotaAction::Assign(Assignment::Grant { .. })]
    ));
}

#[test]
fn a_denial_lasts_until_there_are_units_and_is_sent_once() {
    let mut bucket = bucket("100/min", at(1_000));
    bucket.report(at(1_000), 0, 1);
    let denied = bucket.denied(at(1_000), Duration::from_secs(3));
    let ttl = Duration::from_secs(6);
    assert_eq!(denied, [QuotaAction::Assign(Assignment::DenyAll { ttl })]);
    assert_eq!(bucket.wake_at(), Some(at(1_003)));
    assert_eq!(bucket.wake(at(1_002)), []);
    assert_eq!(bucket.wake(at(1_003)), [QuotaAction::Look]);

    assert_eq!(bucket.denied(at(1_003), Duration::from_micros(1)), []);
    assert_eq!(
        bucket.wake_at(),
        Some(at(1_004)),
        "a second later at the earliest"
    );
    // An Envoy that does not report gets nothing.
    assert_eq!(bucket.wake(at(1_010)), []);
}

#[test]
fn without_the_store_the_assignment_stays_and_the_store_is_asked_each_second() {
    let mut bucket = bucket("fixed_window 60/20s", at(1_001));
    bucket.report(at(1_001), 0, 1);
    bucket.store_away(at(1_001));
    for second in 1_002..1_008 {
        assert_eq!(bucket.wake_at(), Some(at(second)));
        assert_eq!(bucket.wake(at(second)), [QuotaAction::Look]);
        bucket.store_away(at(second));
    }
}

#[test]
fn a_smaller_grant_does_not_take_away_what_is_left() {
    let mut bucket = bucket("fixed_window 60/20s", at(1_000));
    bucket.report(at(1_000), 0, 1);
    let first = grant(&mut bucket, at(1_000), 60);
    assert!(matches!(
        first[..],
        [QuotaAction::Assign(Assignment::Grant { units: 15, .. })]
    ));
    // 10 are left, more are expected, and the budget has 2.
    assert_eq!(bucket.report(at(1_005), 5, 60), [QuotaAction::Look]);
    let kept = grant(&mut bucket, at(1_005), 2);
    assert!(
        matches!(
            kept[..],
            [QuotaAction::Assign(Assignment::Extension { units: 15, .. })]
        ),
        "{kept:?}"
    );
    let kept = bucket.denied(at(1_006), Duration::from_secs(14));
    assert!(
        matches!(
            kept[..],
            [QuotaAction::Assign(Assignment::Extension { .. })]
        ),
        "{kept:?}"
    );
}

#[test]
fn a_key_that_is_not_enforced_is_allowed_and_recorded() {
    let policy = Policy::parse("api", "100/min").unwrap();
    let mut bucket = QuotaBucket::new(GrantTerms::new(&policy), false, at(1_000));
    let ttl = Duration::from_secs(60);
    let allow = QuotaAction::Assign(Assignment::AllowAll { ttl });
    assert_eq!(
        bucket.report(at(1_000), 7, 0),
        [QuotaAction::Record(7), allow.clone()]
    );
    assert_eq!(bucket.report(at(1_005), 9, 0), [QuotaAction::Record(9)]);
    assert_eq!(bucket.report(at(1_031), 0, 1), [allow]);
}
