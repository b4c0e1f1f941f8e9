//! What a policy is beside its limits: throttle modes, refusals, tiers, shadow, charges that change.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ratelimit_core::{
    Limiter, LoadSignal, Policy, Throttle, Timestamp,
    store::{Hit, Settlement},
};
use ratelimit_tests::redis::TestRedis;

use crate::stores::{TestStore, key, policy};

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

#[tokio::test]
async fn a_soft_limit_of_100_passes_110_and_marks_the_last_ten() {
    let redis = TestRedis::start().await;
    for text in [
        "100/d",
        "leaky_bucket 100/d police",
        "fixed_window 100/d",
        "sliding_window_log 100/d",
        "sliding_window_counter 100/d",
        "concurrency 100 lease 1d",
    ] {
        let soft = policy("soft", text).with_throttle(Throttle::Soft { percent: 10 });
        let (soft, alice) = (soft.unwrap(), key(text));
        for subject in TestStore::all(&redis).await {
            subject.clock.set(Timestamp::from_micros(SECOND));
            for number in 1..=111 {
                let hit = Hit::new(&soft, &alice).slot(number);
                let decision = subject.store.hit(hit).await.unwrap();

                let told = (decision.is_allowed(), decision.is_over, decision.remaining);
                let expected = match number {
                    1..=100 => (true, false, 100 - number),
                    101..=110 => (true, true, 0),
                    _ => (false, false, 0),
                };
                assert_eq!(told, expected, "{} {text} {number}", subject.name);
                assert_eq!(decision.limit, 100);
            }
        }
    }
}

#[tokio::test]
async fn an_elastic_limit_follows_its_signal_and_forgets_nothing() {
    let redis = TestRedis::start().await;
    let load = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&load);
    let signal = LoadSignal::of(move || its.load(Ordering::Relaxed), 10);
    let elastic = Throttle::Elastic {
        percent: 50,
        signal,
    };
    let elastic = policy("elastic", "fixed_window 10/d").with_throttle(elastic);
    let elastic = elastic.unwrap();
    for subject in TestStore::all(&redis).await {
        load.store(0, Ordering::Relaxed);
        let limiter = Limiter::new(Arc::clone(&subject.store));
        let passed = async |most: u64| {
            let mut passed = 0;
            for _ in 0..most {
                let check = limiter.check(&elastic, &key("a")).await;
                passed += u64::from(check.is_allowed());
            }
            passed
        };

        assert_eq!(passed(12).await, 12, "{}", subject.name);
        load.store(10, Ordering::Relaxed);
        assert_eq!(passed(5).await, 0, "no room, and 12 are spent");
        load.store(9, Ordering::Relaxed);
        assert_eq!(passed(5).await, 0, "not below the lower mark yet");
        load.store(0, Ordering::Relaxed);
        assert_eq!(
            passed(5).await,
            3,
            "15 in all, however often room came and went"
        );
    }
}

#[tokio::test]
async fn a_key_denied_too_often_is_blocked_and_admitted_again() {
    let redis = TestRedis::start().await;
    let boxed = policy("boxed", "fixed_window 1/min; penalty_box 2/min for 10min");
    for subject in TestStore::all(&redis).await {
        let hit = async |micros| subject.hit(&boxed, &key("a"), micros, 1).await;
        let told = |decision: &ratelimit_core::Decision| {
            let wait = decision.retry_after().unwrap().as_secs();
            (decision.is_allowed(), decision.binding, wait)
        };

        assert_eq!(told(&hit(0).await), (true, 0, 0));
        assert_eq!(told(&hit(SECOND).await), (false, 0, 59));
        assert_eq!(told(&hit(2 * SECOND).await), (false, 1, 600));
        assert_eq!(told(&hit(MINUTE).await), (false, 1, 542));
        assert!(!hit(602 * SECOND - 1).await.is_allowed());
        assert_eq!(told(&hit(602 * SECOND).await), (true, 0, 0));
    }
}

#[tokio::test]
async fn refusals_grow_until_a_key_behaves() {
    let redis = TestRedis::start().await;
    let text = "fixed_window 1/s; penalty_box 1/min for 1min growing";
    let boxed = policy("growing", text);
    for subject in TestStore::all(&redis).await {
        let mut now = 0;
        let mut refusals = Vec::new();
        for _ in 0..4 {
            subject.hit(&boxed, &key("a"), now, 1).await;
            let denied = subject.hit(&boxed, &key("a"), now, 1).await;
            let wait = denied.retry_after().unwrap();
            refusals.push(wait.as_secs());
            now += u64::try_from(wait.as_micros()).unwrap();
        }
        assert_eq!(refusals, [60, 120, 240, 480], "{}", subject.name);

        now += MINUTE;
        subject.hit(&boxed, &key("a"), now, 1).await;
        let denied = subject.hit(&boxed, &key("a"), now, 1).await;
        assert_eq!(denied.retry_after().unwrap().as_secs(), 60);
    }
}

#[tokio::test]
async fn a_shadow_decides_and_never_denies() {
    let redis = TestRedis::start().await;
    let shadow = policy("shadow", "1/d").shadow();
    for subject in TestStore::all(&redis).await {
        let limiter = Limiter::new(Arc::clone(&subject.store));
        for number in 0..3 {
            let verdict = limiter.check(&shadow, &key("a")).await;

            let decision = verdict.decision().unwrap();
            assert!(verdict.is_allowed());
            assert_eq!(decision.is_allowed(), number == 0, "{}", subject.name);
            assert!(!decision.is_enforced);
        }
        assert_eq!(limiter.shadow_offenders("shadow", 1)[0].denied, 2);
    }
}

#[tokio::test]
async fn the_configured_percentage_of_keys_is_enforced_and_always_the_same_keys() {
    let half = policy("half", "1/d").with_enforcement(50).unwrap();
    let mut denied = Vec::new();
    for _ in 0..2 {
        let limiter = Limiter::in_memory();
        let mut refused = Vec::new();
        for number in 0..1_000 {
            let key = key(&number.to_string());
            let _ = limiter.check(&half, &key).await;
            if !limiter.check(&half, &key).await.is_allowed() {
                refused.push(number);
            }
        }
        denied.push(refused);
    }

    assert!((400..600).contains(&denied[0].len()));
    assert_eq!(denied[0], denied[1]);
}

#[tokio::test]
async fn a_key_that_changes_tiers_keeps_what_it_spent() {
    let redis = TestRedis::start().await;
    let paid = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&paid);
    let tiers = policy("tiers", "fixed_window 3/d")
        .with_tier("pro", "fixed_window 10/d")
        .unwrap()
        .with_tier_resolver(move |_| match its.load(Ordering::Relaxed) {
            0 => None,
            1 => Some("pro".to_owned()),
            _ => Some("unknown".to_owned()),
        });
    for subject in TestStore::all(&redis).await {
        let limiter = Limiter::new(Arc::clone(&subject.store));
        let spend = async |tier| {
            paid.store(tier, Ordering::Relaxed);
            let verdict = limiter.check(&tiers, &key("acme")).await;
            let decision = verdict.decision().unwrap();
            (decision.is_allowed(), decision.limit, decision.remaining)
        };

        assert_eq!(spend(0).await, (true, 3, 2), "{}", subject.name);
        assert_eq!(spend(1).await, (true, 10, 8));
        assert_eq!(spend(1).await, (true, 10, 7));
        assert_eq!(spend(2).await, (false, 3, 0), "unknown is the default");
    }
}

#[tokio::test]
async fn a_reservation_is_settled_in_its_own_window_only() {
    let redis = TestRedis::start().await;
    for text in [
        "fixed_window 100/min",
        "sliding_window_log 100/min",
        "100/min",
    ] {
        let tokens = policy("settled", text);
        for subject in TestStore::all(&redis).await {
            let limiter = Limiter::new(Arc::clone(&subject.store));
            let alice = key(text);
            let at = |micros| subject.clock.set(Timestamp::from_micros(micros));
            let left = async || {
                let look = limiter.peek(&tokens, &alice).await;
                look.decision().unwrap().remaining
            };
            let reserve = async |cost| {
                let hit = Hit::new(&tokens, &alice).cost(cost);
                limiter.reserve(hit).await.1.unwrap()
            };
            let place = format!("{} {text}", subject.name);

            at(0);
            let charge = reserve(60).await;
            assert_eq!(charge.settle(15).await.unwrap(), Settlement::Applied);
            assert_eq!(left().await, 85, "{place}");
            let more = reserve(10).await;
            assert_eq!(more.settle(25).await.unwrap(), Settlement::Applied);
            assert_eq!(left().await, 60, "{place}");

            let late = reserve(60).await;
            at(3 * MINUTE);
            let other = reserve(40).await;
            assert_eq!(
                late.refund().await.unwrap(),
                Settlement::Unchanged,
                "{place}"
            );
            assert_eq!(left().await, 60, "{place}: the other's charge stands");
            drop(other);
        }
        redis.assert_every_key_expires();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn refunds_at_once_leave_exactly_what_was_kept() {
    let redis = TestRedis::start().await;
    let limit = policy("refunds", "fixed_window 1000/366d; 1000/366d");
    for subject in TestStore::all(&redis).await {
        let limiter = Limiter::new(Arc::clone(&subject.store));
        let tasks: Vec<_> = (0..200)
            .map(|number| {
                let (limiter, limit) = (limiter.clone(), limit.clone());
                tokio::spawn(async move {
                    let hot = key("hot");
                    let hit = Hit::new(&limit, &hot).cost(5);
                    let (verdict, charge) = limiter.reserve(hit).await;
                    assert!(verdict.is_allowed());
                    charge.unwrap().settle(number % 6).await.unwrap();
                })
            })
            .collect();
        let kept: u64 = (0..200).map(|number| number % 6).sum();
        for task in tasks {
            task.await.unwrap();
        }

        let look = limiter.peek(&limit, &key("hot")).await;
        let left: Vec<u64> = look
            .decision()
            .unwrap()
            .limits()
            .map(|limit| limit.remaining)
            .collect();
        assert_eq!(left, [1000 - kept; 2], "{}", subject.name);
    }
}

#[tokio::test]
async fn a_foreseen_hit_spends_nothing_and_is_right() {
    let redis = TestRedis::start().await;
    let limit = policy("foreseen", "10/s burst 100; penalty_box 1/h for 1h");
    for subject in TestStore::all(&redis).await {
        let limiter = Limiter::new(Arc::clone(&subject.store));
        subject.clock.set(Timestamp::from_micros(SECOND));
        assert!(limiter.check_cost(&limit, &key("a"), 95).await.is_allowed());

        let foreseen = limiter.dry_run(&limit, &key("a"), 20).await;
        let wait = foreseen.decision().unwrap().retry_after().unwrap();
        assert_eq!(wait, Duration::from_millis(1_500));

        subject.clock.advance(wait);
        assert!(limiter.check_cost(&limit, &key("a"), 20).await.is_allowed());
    }
}

#[test]
fn a_policy_tells_what_it_is_made_of() {
    let text = "token_bucket 5/min; fixed_window 100/min by ip; concurrency 2 lease 30s; \
                penalty_box 3/min for 1h growing by ip";
    let policy = Policy::parse("api", text).unwrap();

    assert_eq!(policy.to_string(), text);
    assert!(Policy::parse("api", "penalty_box 3/min for 1h").is_err());
    assert!(Policy::parse("api", "5/min by ").is_err());
    assert!(Policy::parse("api", "5/min by a~b").is_err());
    assert!(
        policy
            .with_throttle(Throttle::Soft { percent: 10_001 })
            .is_err()
    );
    assert!(policy.with_enforcement(101).is_err());
}
