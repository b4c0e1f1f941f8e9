//! Single steps of a bucket.

use std::time::Duration;

use ratelimit_core::{Policy, Timestamp};
use ratelimit_envoy::quota::{
    AnswerTime, Assignment, GrantTerms, OtherDemand, QuotaAction, QuotaBucket, Renewal,
};

const ALONE: OtherDemand = OtherDemand {
    holders: 0,
    milli_per_second: 0,
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
        called_at: now,
        answered_at: now,
        decided_at: now,
    }
}

/// Lets the store charge what the bucket wants, and returns what is sent.
fn grant(bucket: &mut QuotaBucket, now: Timestamp, remaining: u64) -> Renewal {
    match bucket.size_grant(answer(now), remaining, ALONE) {
        Ok(units) => bucket.add_grant(answer(now), units).renewal,
        Err(renewal) => renewal,
    }
}

/// A report without units to settle or record, whose assignment is made at once.
fn report(bucket: &mut QuotaBucket, now: Timestamp, allowed: u64, denied: u64) -> Renewal {
    assert_eq!(
        bucket.report(now, allowed, denied).last(),
        Some(&QuotaAction::Renew)
    );
    bucket.renew(now)
}

/// A wake-up, whose assignment is made at once.
fn wake(bucket: &mut QuotaBucket, now: Timestamp) -> Renewal {
    match bucket.wake(now) {
        Some(QuotaAction::Look) => bucket.look(now),
        None => Renewal::Keep,
        Some(other) => panic!("{other:?}"),
    }
}

fn millis(ms: u64) -> Timestamp {
    Timestamp::from_micros(ms * 1_000)
}

#[test]
fn a_grant_under_a_bucket_or_a_log_ends_16_seconds_after_its_charge() {
    for limits in [
        "100/min",
        "sliding_window_log 100/min",
        "fixed_window 9/h; 100/min",
    ] {
        // The turn of the bucket comes so long after the arrival of its report.
        for wait in [0, 700, 2_900] {
            let mut bucket = bucket(limits, at(1_000));
            report(&mut bucket, at(1_000), 1, 0);
            let mut charged_at = at(1_000);
            grant(&mut bucket, at(1_000), 100);
            let mut extensions = 0;
            for second in (1_005..1_050).step_by(5) {
                bucket.report(at(second), 0, 0);
                let now = millis(second * 1_000 + wait);
                let mut last = bucket.renew(now);
                if last == Renewal::Look {
                    last = grant(&mut bucket, now, 100);
                }
                match last {
                    Renewal::Send(Assignment::Grant { .. }) => charged_at = now,
                    Renewal::Send(Assignment::Extension { ttl, .. }) => {
                        extensions += 1;
                        let life = (now + ttl).since(charged_at);
                        assert!(life <= Duration::from_secs(16), "{limits}: {life:?}");
                    }
                    _ => {}
                }
            }
            assert!(extensions > 0, "{limits}");
        }
    }
}

#[test]
fn a_window_is_extended_to_its_end_and_denied_before_it() {
    // The window ends at 1,020.
    let mut bucket = bucket("fixed_window 60/20s", at(1_001));
    report(&mut bucket, at(1_001), 0, 1);
    let first = grant(&mut bucket, at(1_001), 60);
    assert!(
        matches!(first, Renewal::Send(Assignment::Grant { units: 15, ttl, .. })
        if ttl == Duration::from_secs(8))
    );
    for (second, life) in [(1_006, 8), (1_011, 8)] {
        let extended = report(&mut bucket, at(second), 1, 0);
        assert!(
            matches!(extended, Renewal::Send(Assignment::Extension { units: 15, ttl, .. })
            if ttl == Duration::from_secs(life)),
            "{second}: {extended:?}"
        );
    }
    let kept = report(&mut bucket, at(1_016), 1, 0);
    assert_eq!(kept, Renewal::Keep, "it lives to 1,019 already");
    let before_the_end = bucket.wake_at().unwrap();
    assert_eq!(before_the_end, millis(1_018_500));

    let denied = wake(&mut bucket, before_the_end);
    let ttl = Duration::from_secs(4);
    assert_eq!(denied, Renewal::Send(Assignment::DenyAll { ttl }));
    assert_eq!(
        bucket.wake_at(),
        Some(at(1_020)),
        "the start of the next window"
    );
    assert_eq!(wake(&mut bucket, at(1_020)), Renewal::Look);
    let next = grant(&mut bucket, at(1_020), 60);
    assert!(matches!(next, Renewal::Send(Assignment::Grant { .. })));
}

#[test]
fn a_wake_up_near_the_end_of_a_window_leaves_one_for_the_next() {
    let mut bucket = bucket("fixed_window 60/20s", at(1_010));
    report(&mut bucket, at(1_010), 0, 1);
    grant(&mut bucket, at(1_010), 60);
    // 13 are left, more are expected, and the budget has nothing until 1,017.
    assert_eq!(report(&mut bucket, at(1_015), 2, 90), Renewal::Look);
    let kept = bucket.deny(at(1_015), Duration::from_millis(1_500));
    assert!(
        matches!(kept, Renewal::Send(Assignment::Extension { .. })),
        "{kept:?}"
    );
    assert_eq!(bucket.wake_at(), Some(millis(1_016_500)));

    // The wake-up finds little more: the grant lasts to 1,019.
    assert_eq!(wake(&mut bucket, millis(1_016_500)), Renewal::Look);
    assert_eq!(grant(&mut bucket, millis(1_016_500), 1), Renewal::Keep);

    assert_eq!(bucket.wake_at(), Some(millis(1_018_500)));
    let denied = wake(&mut bucket, millis(1_018_500));
    assert!(matches!(denied, Renewal::Send(Assignment::DenyAll { .. })));
    assert_eq!(bucket.wake_at(), Some(at(1_020)));
}

#[test]
fn an_extension_that_might_come_after_the_end_is_not_sent() {
    for (ms, expected) in [(1_005_000, true), (1_007_000, true), (1_007_100, false)] {
        let mut bucket = bucket("100/min", at(1_000));
        report(&mut bucket, at(1_000), 0, 1);
        grant(&mut bucket, at(1_000), 100);
        bucket.report(at(1_005), 0, 0);
        let renewal = bucket.renew(millis(ms));
        let is_extended = matches!(renewal, Renewal::Send(Assignment::Extension { .. }));
        assert_eq!(is_extended, expected, "{ms}: {renewal:?}");
    }
}

#[test]
fn reports_that_come_fast_ask_the_store_each_second() {
    let mut bucket = bucket("100/min", at(1_000));
    assert_eq!(report(&mut bucket, at(1_000), 0, 1), Renewal::Look);
    assert_eq!(
        report(&mut bucket, at(1_000), 0, 1),
        Renewal::Look,
        "it has no assignment"
    );
    grant(&mut bucket, at(1_000), 4);
    assert_eq!(report(&mut bucket, millis(1_000_200), 1, 0), Renewal::Keep);
    assert_eq!(report(&mut bucket, millis(1_000_400), 0, 1), Renewal::Keep);
    assert_eq!(bucket.wake_at(), Some(at(1_001)));
    assert_eq!(wake(&mut bucket, at(1_001)), Renewal::Look);
}

#[test]
fn a_denial_lasts_until_there_are_units_and_is_sent_once() {
    let mut bucket = bucket("100/min", at(1_000));
    report(&mut bucket, at(1_000), 0, 1);
    let denied = bucket.deny(at(1_000), Duration::from_secs(3));
    let ttl = Duration::from_secs(6);
    assert_eq!(denied, Renewal::Send(Assignment::DenyAll { ttl }));
    assert_eq!(bucket.wake_at(), Some(at(1_003)));
    assert_eq!(wake(&mut bucket, at(1_002)), Renewal::Keep);
    assert_eq!(wake(&mut bucket, at(1_003)), Renewal::Look);

    let denied = bucket.deny(at(1_003), Duration::from_micros(1));
    assert_eq!(denied, Renewal::Keep);
    assert_eq!(
        bucket.wake_at(),
        Some(at(1_004)),
        "a second later at the earliest"
    );
    // An Envoy that does not report gets nothing.
    assert_eq!(bucket.wake(at(1_010)), None);
}

#[test]
fn without_the_store_the_assignment_stays_and_the_store_is_asked_each_second() {
    let mut bucket = bucket("fixed_window 60/20s", at(1_001));
    report(&mut bucket, at(1_001), 0, 1);
    bucket.postpone(at(1_001));
    for second in 1_002..1_008 {
        assert_eq!(bucket.wake_at(), Some(at(second)));
        assert_eq!(wake(&mut bucket, at(second)), Renewal::Look);
        bucket.postpone(at(second));
    }
}

#[test]
fn a_smaller_grant_does_not_take_away_what_is_left() {
    let mut bucket = bucket("fixed_window 60/20s", at(1_000));
    report(&mut bucket, at(1_000), 0, 1);
    let first = grant(&mut bucket, at(1_000), 60);
    assert!(matches!(
        first,
        Renewal::Send(Assignment::Grant { units: 15, .. })
    ));
    // 10 are left, more are expected, and the budget has 2.
    assert_eq!(report(&mut bucket, at(1_005), 5, 60), Renewal::Look);
    let kept = grant(&mut bucket, at(1_005), 2);
    assert!(
        matches!(kept, Renewal::Send(Assignment::Extension { units: 15, .. })),
        "{kept:?}"
    );
    let kept = bucket.deny(at(1_006), Duration::from_secs(14));
    assert!(
        matches!(kept, Renewal::Send(Assignment::Extension { .. })),
        "{kept:?}"
    );
}

#[test]
fn a_key_that_is_not_enforced_is_allowed_and_recorded() {
    let policy = Policy::parse("api", "100/min").unwrap();
    let mut bucket = QuotaBucket::new(GrantTerms::new(&policy), false, at(1_000));
    let ttl = Duration::from_secs(60);
    let allow = Renewal::Send(Assignment::AllowAll { ttl });
    let recorded = |requests| [QuotaAction::Record(requests), QuotaAction::Renew];
    assert_eq!(bucket.report(at(1_000), 7, 0), recorded(7));
    assert_eq!(bucket.renew(at(1_000)), allow);
    assert_eq!(bucket.report(at(1_005), 9, 0), recorded(9));
    assert_eq!(bucket.renew(at(1_005)), Renewal::Keep);
    assert_eq!(report(&mut bucket, at(1_031), 0, 1), allow);
}
