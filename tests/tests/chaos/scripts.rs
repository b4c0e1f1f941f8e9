//! Scripts that are forgotten, differ between instances, or get other limits.

use ratelimit_core::{FailureMode, Verdict};
use ratelimit_tests::chaos::{Fixture, Kind, PATIENCE, ours, scenario};

use crate::harness::{is_checked, key, policy, remaining};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_10_a_forgotten_script_costs_no_decision() {
    let report = scenario::flushed_scripts(Kind::Ours).await;

    report.assert_survived();
    assert_eq!(report.unchecked, 0, "a decision left the store");
    assert_eq!(report.forgotten, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_33_two_versions_of_a_script_share_one_budget() {
    let fixture = Fixture::start(&[]).await;
    fixture.proxy.overhear();
    let ours = ours(fixture.config().timeout(PATIENCE), FailureMode::Closed).await;
    let limit = policy("deploy", "fixed_window 20/366d; 20/366d");
    let first = ours.limiter.check(&limit, &key("both")).await;
    let other = other_version(&fixture);

    let mut connection = redis::Client::open(fixture.server.url())
        .and_then(|client| client.get_connection())
        .unwrap();
    for _ in 0..10 {
        let _: redis::Value = other.query(&mut connection).unwrap();
    }
    let mut admitted = 1 + 10;
    for _ in 0..20 {
        admitted += u32::from(ours.limiter.check(&limit, &key("both")).await.is_allowed());
    }

    assert_eq!(remaining(&first), 19);
    assert_eq!(admitted, 20);
    println!("row 33 two script versions: 11 and 9 admitted of 20");
}

/// The call that was overheard last, by a script of the same meaning and another hash.
fn other_version(fixture: &Fixture) -> redis::Cmd {
    let heard = fixture.proxy.heard();
    let call = heard.iter().rev().find(|words| {
        let name = words.get(3);
        name.is_some_and(|name| name.ends_with(b"{key:both}"))
    });
    let call = call.expect("a call");
    let words = heard.iter().flatten();
    let mut texts = words.filter_map(|word| str::from_utf8(word).ok());
    let is_by_text = call[0].eq_ignore_ascii_case(b"EVAL");
    let script = texts.find(|text| {
        if is_by_text {
            *text.as_bytes() == *call[1]
        } else {
            *redis::Script::new(text).get_hash().as_bytes() == *call[1]
        }
    });
    let mut command = redis::cmd("EVAL");
    command.arg(format!(
        "{}\n-- as deployed next",
        script.expect("its script")
    ));
    for word in &call[2..] {
        command.arg(word.as_slice());
    }
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_34_a_changed_limit_holds_for_the_next_hit_and_forgets_nothing() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(PATIENCE), FailureMode::Closed).await;
    for algorithm in [
        "token_bucket",
        "leaky_bucket",
        "fixed_window",
        "sliding_window_log",
        "sliding_window_counter",
    ] {
        let limited = |limit: u64| policy("live", &format!("{algorithm} {limit}/366d"));
        let subject = key(algorithm);
        let look = async |limit| remaining(&ours.limiter.peek(&limited(limit), &subject).await);

        for _ in 0..6 {
            assert!(
                ours.limiter
                    .check(&limited(10), &subject)
                    .await
                    .is_allowed()
            );
        }

        assert_eq!(look(10).await, 4, "{algorithm}");
        assert_eq!(look(3).await, 0, "{algorithm}");
        assert!(!ours.limiter.check(&limited(3), &subject).await.is_allowed());
        assert_eq!(look(20).await, 14, "{algorithm}");
        assert_eq!(look(10).await, 4, "{algorithm}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_34_limits_that_change_under_load_admit_no_more_than_the_largest() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(PATIENCE), FailureMode::Closed).await;
    let tasks = (0..16_u64).map(|task| {
        let limiter = ours.limiter.clone();
        tokio::spawn(async move {
            let mut admitted = 0;
            for round in 0..50 {
                let text = format!("fixed_window {}/366d", 50 + 50 * ((task + round) % 2));
                let verdict = limiter.check(&policy("live", &text), &key("k")).await;
                assert!(is_checked(&verdict), "{verdict:?}");
                admitted += u64::from(verdict.is_allowed());
            }
            admitted
        })
    });

    let mut admitted = 0;
    for task in tasks.collect::<Vec<_>>() {
        admitted += task.await.unwrap();
    }

    println!("row 34 a limit of 50 or 100: {admitted} of 800 admitted");
    assert_eq!(admitted, 100);
    let end = ours
        .limiter
        .peek(&policy("live", "fixed_window 100/366d"), &key("k"))
        .await;
    assert!(matches!(end, Verdict::Checked(look) if look.remaining == 0));
}
