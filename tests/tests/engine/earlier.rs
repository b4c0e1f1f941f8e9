//! What was spent earlier counts: under a policy with other limits, after refunds, and not after a reset.

use std::{sync::Arc, time::Duration};

use ratelimit_core::{
    Clock, Key, KeySet, MemoryStore, Policy, Timestamp, metrics,
    store::{Adjustment, Hit, JointHit, Receipt, Settlement, Store as _},
};
use ratelimit_tests::{chaos::Observations, redis::TestRedis};

use crate::stores::{TestStore, key, policy};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

async fn subjects(redis: &TestRedis) -> [TestStore; 2] {
    let subjects = TestStore::all(redis).await;
    for subject in &subjects {
        subject.clock.set(START);
    }
    subjects
}

async fn passes(subject: &TestStore, policy: &Policy, key: &Key) -> bool {
    let decision = subject.store.hit(Hit::new(policy, key)).await;
    decision.expect("the store decides").is_allowed()
}

/// What remains of each limit.
async fn left(subject: &TestStore, policy: &Policy, key: &Key) -> Vec<u64> {
    let look = subject.store.hit(Hit::new(policy, key).cost(0)).await;
    let look = look.expect("the store decides");
    look.limits().map(|limit| limit.remaining).collect()
}

async fn charge(subject: &TestStore, policy: &Policy, key: &Key, cost: u64) -> Receipt {
    let hit = Hit::new(policy, key).cost(cost).slot(cost + 1);
    let decision = subject.store.hit(hit).await.expect("the store decides");
    Receipt::new(hit, &decision).expect("there is room")
}

/// During a rolling deploy, instances with the old limits and with the new ones decide in turn (H3).
#[tokio::test]
async fn a_limit_that_is_added_holds_while_old_instances_still_run() {
    let redis = TestRedis::start().await;
    for (old, new, most) in [
        ("1000000/d", "1000000/d; 20/d", 20),
        (
            "fixed_window 1000000/d",
            "fixed_window 1000000/d; fixed_window 20/d",
            20,
        ),
        (
            "sliding_window_log 9000/d",
            "sliding_window_log 9000/d; sliding_window_log 20/d; 7/d",
            7,
        ),
        (
            "1000000/d; sliding_window_counter 900000/d",
            "1000000/d; sliding_window_counter 900000/d; leaky_bucket 20/d police",
            20,
        ),
    ] {
        let (old, new) = (policy("deploy", old), policy("deploy", new));
        for subject in subjects(&redis).await {
            let alice = key("alice");
            let mut passed = 0;
            for _ in 0..100 {
                assert!(
                    passes(&subject, &old, &alice).await,
                    "{}: {old}",
                    subject.name
                );
                passed += u64::from(passes(&subject, &new, &alice).await);
            }

            assert_eq!(passed, most, "{}: {new}", subject.name);
        }
    }
}

#[tokio::test]
async fn a_tier_with_fewer_limits_forgets_nothing_of_the_other() {
    let redis = TestRedis::start().await;
    for (free, pro) in [
        ("1000000/d", "1000000/d; 20/d"),
        (
            "fixed_window 50/d",
            "fixed_window 50/d; sliding_window_log 20/d",
        ),
        (
            "30/d; 40/d",
            "30/d; 40/d; sliding_window_counter 20/d; fixed_window 21/d",
        ),
    ] {
        let (free, pro) = (policy("tiers", free), policy("tiers", pro));
        for subject in subjects(&redis).await {
            let alice = key("alice");
            for _ in 0..20 {
                assert!(
                    passes(&subject, &pro, &alice).await,
                    "{}: {pro}",
                    subject.name
                );
            }
            let spent = left(&subject, &pro, &alice).await;

            assert!(
                passes(&subject, &free, &alice).await,
                "{}: {free}",
                subject.name
            );

            let after = left(&subject, &pro, &alice).await;
            let own = free.limits().len();
            assert_eq!(after[own..], spent[own..], "{}: {pro}", subject.name);
            let counted = after[..own]
                .iter()
                .zip(&spent)
                .all(|(now, then)| now + 1 == *then);
            assert!(counted, "{}: {after:?} after {spent:?}", subject.name);
            assert!(
                !passes(&subject, &pro, &alice).await,
                "{}: {pro}",
                subject.name
            );
        }
    }
}

/// How many of `count` hits at once pass.
async fn passed_of(count: u64, subject: &TestStore, policy: &Policy, key: &Key) -> u64 {
    let mut passed = 0;
    for _ in 0..count {
        passed += u64::from(passes(subject, policy, key).await);
    }
    passed
}

/// A state in the middle is renewed by a tier that knows it, while the tail still tells of an earlier one.
#[tokio::test]
async fn three_tiers_forget_nothing_of_each_other() {
    let redis = TestRedis::start().await;
    let minute = Duration::from_secs(60);
    for (first, middle, last) in [
        ("1000000/d", "20/d", "100/min"),
        (
            "fixed_window 1000000/366d",
            "sliding_window_log 20/d",
            "fixed_window 100/min",
        ),
        (
            "leaky_bucket 1000000/d police",
            "sliding_window_counter 20/366d",
            "7/s",
        ),
    ] {
        let free = policy("three", first);
        let basic = policy("three", &format!("{first}; {middle}"));
        let pro = policy("three", &format!("{first}; {middle}; {last}"));
        for subject in subjects(&redis).await {
            let alice = key("alice");
            let place = format!("{}: {pro}", subject.name);
            assert!(passes(&subject, &pro, &alice).await, "{place}");
            subject.clock.advance(minute);
            assert!(passes(&subject, &free, &alice).await, "{place}");
            subject.clock.advance(minute);
            assert_eq!(passed_of(25, &subject, &basic, &alice).await, 19, "{place}");
            subject.clock.advance(minute);
            assert!(passes(&subject, &free, &alice).await, "{place}");

            // Later than the hit under three limits alone would have counted.
            subject.clock.advance(71 * minute);
            assert!(passes(&subject, &free, &alice).await, "{place}");

            // A bucket has refilled by one, which an hour and a quarter of a day do.
            let refilled = u64::from(middle == "20/d");
            let more = passed_of(25, &subject, &basic, &alice).await;
            assert_eq!(more, refilled, "{place}");
        }
    }
}

/// The tail of a reset tells nothing of the states that were written after it.
#[tokio::test]
async fn a_reset_between_tiers_forgets_nothing_that_is_spent_after_it() {
    let redis = TestRedis::start().await;
    for (first, second) in [
        ("1000000/d", "20/d"),
        ("1000000/d", "fixed_window 20/366d"),
        (
            "sliding_window_counter 1000000/s",
            "sliding_window_log 20/d",
        ),
    ] {
        let free = policy("between", first);
        let pro = policy("between", &format!("{first}; {second}"));
        for subject in subjects(&redis).await {
            let alice = key("alice");
            let place = format!("{}: {pro}", subject.name);
            let pause = Duration::from_millis(100);
            assert!(passes(&subject, &free, &alice).await, "{place}");
            subject.clock.advance(pause);
            let keys = KeySet::new(alice.clone());
            subject.store.reset(&free, &keys).await.unwrap();
            subject.clock.advance(pause);
            assert_eq!(passed_of(25, &subject, &pro, &alice).await, 20, "{place}");
            subject.clock.advance(pause);
            assert!(passes(&subject, &free, &alice).await, "{place}");

            // Later than the value from before the reset would have counted.
            subject.clock.advance(Duration::from_secs(4));
            assert!(passes(&subject, &free, &alice).await, "{place}");

            assert_eq!(passed_of(25, &subject, &pro, &alice).await, 0, "{place}");
        }
    }
}

/// The rest of limits that the last policy does not have is unknown, so the memory store evicts other keys.
#[tokio::test]
async fn a_flood_of_new_keys_evicts_no_states_of_another_tier() {
    let (free, pro) = (
        policy("kept", "1000000/d"),
        policy("kept", "1000000/d; 20/d"),
    );
    let other = policy("other", "1000/h");
    for is_reset in [false, true] {
        let clock = Clock::manual(START);
        let store = MemoryStore::new().capacity(100).clock(clock.clone());
        let subject = TestStore {
            name: "memory",
            store: Arc::new(store),
            clock,
        };
        let alice = key("alice");
        if is_reset {
            assert_eq!(passed_of(5, &subject, &pro, &alice).await, 5);
            let keys = KeySet::new(alice.clone());
            subject.store.reset(&pro, &keys).await.unwrap();
            subject.clock.advance(Duration::from_secs(1));
        }
        assert_eq!(passed_of(25, &subject, &pro, &alice).await, 20);
        assert!(passes(&subject, &free, &alice).await);

        for number in 0..10_000 {
            assert!(passes(&subject, &other, &key(&format!("new-{number}"))).await);
        }

        let remain = left(&subject, &pro, &alice).await;
        assert_eq!(remain, [999_979, 0], "after a reset: {is_reset}");
    }
}

/// The value lives as long as the longest of its states, whichever policy wrote last.
#[tokio::test]
async fn a_state_of_a_longer_period_outlives_hits_under_shorter_ones() {
    let redis = TestRedis::start().await;
    let (short, both) = (
        policy("outlives", "5/s"),
        policy("outlives", "5/s; fixed_window 3/366d"),
    );
    for subject in subjects(&redis).await {
        let alice = key("alice");
        for _ in 0..3 {
            assert!(passes(&subject, &both, &alice).await);
        }

        assert!(passes(&subject, &short, &alice).await);
        subject.clock.advance(Duration::from_secs(100));

        assert!(!passes(&subject, &both, &alice).await, "{}", subject.name);
    }
    // On the server's own clock, Redis itself decides how long the value lives.
    let store = redis.store(Clock::system()).await;
    let bob = key("bob");
    let hit = async |policy: &Policy| store.hit(Hit::new(policy, &bob)).await.unwrap();
    for _ in 0..3 {
        assert!(hit(&both).await.is_allowed());
    }
    assert!(hit(&short).await.is_allowed());
    let name = redis.keys().into_iter().find(|name| name.contains("bob"));
    let lives_for: i64 = redis.query("PTTL", &name.expect("the key was written"));
    assert!(lives_for > 86_400_000, "it lives for {lives_for} ms");
}

/// A refund gives back what its own hit charged and time has not given back since, and no more (M8).
#[tokio::test]
async fn a_refund_after_another_refund_credits_no_other_charge() {
    let redis = TestRedis::start().await;
    // One unit for each tick of a microsecond, which is what the clock is moved by.
    for text in [
        "token_bucket 1000/1ms burst 1000",
        "leaky_bucket 1000/1ms queue 1000 police",
    ] {
        let bucket = policy("refunds", text);
        for subject in subjects(&redis).await {
            let alice = key("alice");
            let a = charge(&subject, &bucket, &alice, 50).await;
            let b = charge(&subject, &bucket, &alice, 50).await;
            let refund = async |receipt: &Receipt, units| {
                let settled = subject
                    .store
                    .settle(receipt, Adjustment::Refund { units })
                    .await;
                settled.expect("the store settles")
            };
            assert_eq!(refund(&a, 40).await, Settlement::Applied);
            assert_eq!(left(&subject, &bucket, &alice).await, [940]);

            subject.clock.advance(Duration::from_micros(60));
            assert_eq!(left(&subject, &bucket, &alice).await, [1_000]);
            let _c = charge(&subject, &bucket, &alice, 50).await;
            refund(&b, 50).await;

            let remain = left(&subject, &bucket, &alice).await;
            assert_eq!(
                remain,
                [950],
                "{} {text}: all of C is still charged",
                subject.name
            );
        }
    }
}

/// A bucket whose unit changes does not know which charges time has forgiven since: those from before give nothing
/// back, also when the unit is the same again.
#[tokio::test]
async fn a_receipt_from_before_a_change_of_the_period_credits_nothing() {
    let redis = TestRedis::start().await;
    for (hour, minute) in [
        ("100/h", "100/min"),
        (
            "leaky_bucket 100/h queue 100 police",
            "leaky_bucket 100/min queue 100 police",
        ),
        // A millisecond of microseconds and a second of milliseconds have as many ticks.
        ("100/1ms", "9007199254740/s"),
    ] {
        let (hour, minute) = (policy("periods", hour), policy("periods", minute));
        for subject in subjects(&redis).await {
            let alice = key("alice");
            let place = format!("{}: {hour}", subject.name);
            let before = charge(&subject, &hour, &alice, 50).await;
            charge(&subject, &minute, &alice, 1).await;
            let between = charge(&subject, &minute, &alice, 1).await;
            let after = charge(&subject, &hour, &alice, 40).await;
            let charged = left(&subject, &hour, &alice).await;

            let refund = async |receipt: &Receipt| {
                let units = receipt.cost();
                let settled = subject.store.settle(receipt, Adjustment::Refund { units });
                settled.await.expect("the store settles")
            };

            assert_eq!(refund(&before).await, Settlement::Unchanged, "{place}");
            assert_eq!(refund(&between).await, Settlement::Unchanged, "{place}");
            assert_eq!(left(&subject, &hour, &alice).await, charged, "{place}");
            assert_eq!(refund(&after).await, Settlement::Applied, "{place}");
            let remain = left(&subject, &hour, &alice).await;
            assert_eq!(remain, [charged[0] + 40], "{place}: its own charge");
        }
    }
}

#[tokio::test]
async fn a_refund_of_more_than_the_cost_credits_no_other_charge() {
    let redis = TestRedis::start().await;
    for text in [
        "token_bucket 100/h burst 100",
        "leaky_bucket 100/h queue 100",
        "fixed_window 100/h",
        "sliding_window_log 100/h",
        "sliding_window_counter 100/h",
    ] {
        let policy = policy("excess", text);
        for subject in subjects(&redis).await {
            let alice = key("alice");
            let place = format!("{}: {text}", subject.name);
            charge(&subject, &policy, &alice, 50).await;
            let own = charge(&subject, &policy, &alice, 10).await;

            let refund = Adjustment::Refund { units: 60 };
            subject.store.settle(&own, refund).await.unwrap();

            assert_eq!(left(&subject, &policy, &alice).await, [50], "{place}");
        }
    }
}

/// The mark of a receipt that is read again is of the unit that it was charged under.
#[tokio::test]
async fn a_receipt_that_is_read_under_another_period_credits_nothing() {
    let redis = TestRedis::start().await;
    let (minute, hour) = (policy("read", "10/min"), policy("read", "10/h"));
    for subject in subjects(&redis).await {
        for pause in [1, 30] {
            let alice = key(&format!("alice-{pause}"));
            let place = format!("{} after {pause} s", subject.name);
            let bytes = charge(&subject, &minute, &alice, 4).await.to_bytes();
            // After 24 s nothing of it is left, and the value is another one.
            subject.clock.advance(Duration::from_secs(pause));
            charge(&subject, &hour, &alice, 4).await;
            let charged = left(&subject, &hour, &alice).await;
            let receipt = Receipt::from_bytes(&bytes, |_| Some(hour.clone())).unwrap();

            let refund = Adjustment::Refund { units: 4 };
            let settled = subject.store.settle(&receipt, refund).await.unwrap();

            assert_eq!(settled, Settlement::Unchanged, "{place}");
            assert_eq!(left(&subject, &hour, &alice).await, charged, "{place}");
        }
    }
}

/// An instance of the last release writes a bucket without the tokens refunded.
#[tokio::test]
async fn a_refund_after_an_old_instance_dropped_the_count_credits_no_other_charge() {
    let redis = TestRedis::start().await;
    let bucket = policy("mixed", "token_bucket 1000/1ms burst 1000");
    let [_, subject] = subjects(&redis).await;
    let alice = key("alice");
    let refund = async |receipt: &Receipt, units| {
        let refund = Adjustment::Refund { units };
        let settled = subject.store.settle(receipt, refund).await;
        settled.expect("the store settles")
    };
    let first = charge(&subject, &bucket, &alice, 100).await;
    assert_eq!(refund(&first, 100).await, Settlement::Applied);
    let a = charge(&subject, &bucket, &alice, 50).await;
    let b = charge(&subject, &bucket, &alice, 50).await;

    let name = redis.keys().into_iter().find(|name| name.contains("alice"));
    let name = name.expect("the key was written");
    let value: Vec<u8> = redis.query("GET", &name);
    assert_eq!(value.len(), 48, "a state of 36 bytes");
    let old = [&value[..8], &28_u32.to_le_bytes(), &value[12..40]].concat();
    let mut set = redis::cmd("SET");
    set.arg(&name).arg(old).arg("PX").arg(60_000);
    set.exec(&mut redis.connection()).unwrap();
    assert_eq!(left(&subject, &bucket, &alice).await, [900]);
    refund(&a, 40).await;
    subject.clock.advance(Duration::from_micros(61));
    charge(&subject, &bucket, &alice, 50).await;
    let charged = left(&subject, &bucket, &alice).await;
    refund(&b, 50).await;

    assert_eq!(left(&subject, &bucket, &alice).await, charged);
    // New charges are given back again.
    let c = charge(&subject, &bucket, &alice, 7).await;
    assert_eq!(refund(&c, 7).await, Settlement::Applied);
    assert_eq!(left(&subject, &bucket, &alice).await, charged);
}

const ALGORITHMS: [&str; 7] = [
    "token_bucket 10/d",
    "leaky_bucket 10/d queue 10 police",
    "fixed_window 10/366d",
    "sliding_window_log 10/d",
    "sliding_window_counter 10/366d",
    "token_bucket 10/d; fixed_window 10/366d",
    "sliding_window_log 10/d; sliding_window_counter 10/366d",
];

#[tokio::test]
async fn a_receipt_from_before_a_reset_credits_nothing_afterwards() {
    let redis = TestRedis::start().await;
    for text in ALGORITHMS {
        // At the same moment, and a while later: neither may be taken for the same charge.
        for pause in [
            Duration::ZERO,
            Duration::from_micros(1),
            Duration::from_secs(1),
        ] {
            let limit = policy("reset", text);
            for subject in subjects(&redis).await {
                let alice = key("alice");
                let place = format!("{} {text} after {pause:?}", subject.name);
                let before = charge(&subject, &limit, &alice, 4).await;
                let keys = KeySet::new(alice.clone());
                subject.store.reset(&limit, &keys).await.unwrap();
                subject.clock.advance(pause);
                charge(&subject, &limit, &alice, 4).await;
                let charged = left(&subject, &limit, &alice).await;

                let refund = Adjustment::Refund { units: 4 };
                let settled = subject.store.settle(&before, refund).await.unwrap();

                assert_eq!(left(&subject, &limit, &alice).await, charged, "{place}");
                assert_ne!(settled, Settlement::Applied, "{place}");
            }
        }
    }
}

#[tokio::test]
async fn a_slot_from_before_a_reset_is_not_renewed_afterwards() {
    let redis = TestRedis::start().await;
    let slots = policy("slots", "concurrency 2 lease 1h");
    for subject in subjects(&redis).await {
        let alice = key("alice");
        let before = charge(&subject, &slots, &alice, 1).await;
        let keys = KeySet::new(alice.clone());
        subject.store.reset(&slots, &keys).await.unwrap();
        let hit = |slot| Hit::new(&slots, &alice).slot(slot);
        for slot in [70, 71] {
            assert!(subject.store.hit(hit(slot)).await.unwrap().is_allowed());
        }

        let renewed = subject
            .store
            .settle(&before, Adjustment::Renew)
            .await
            .unwrap();
        let released = subject
            .store
            .settle(&before, Adjustment::Release)
            .await
            .unwrap();

        assert_eq!(renewed, Settlement::LeaseLost, "{}", subject.name);
        assert_ne!(released, Settlement::Applied, "{}", subject.name);
        assert_eq!(
            left(&subject, &slots, &alice).await,
            [0],
            "{}",
            subject.name
        );
    }
}

/// A reset forgets what every limit of the key has, those of other tiers included.
#[tokio::test]
async fn a_reset_under_fewer_limits_forgets_all_of_them() {
    let redis = TestRedis::start().await;
    let (free, pro) = (
        policy("both", "9/d"),
        policy("both", "9/d; fixed_window 2/366d"),
    );
    for subject in subjects(&redis).await {
        let alice = key("alice");
        for _ in 0..2 {
            assert!(passes(&subject, &pro, &alice).await);
        }
        let keys = KeySet::new(alice.clone());

        subject.store.reset(&free, &keys).await.unwrap();

        assert_eq!(
            left(&subject, &pro, &alice).await,
            [9, 2],
            "{}",
            subject.name
        );
    }
}

/// Moving a limit to another place is another limit, and neither spends the other's budget.
#[tokio::test]
async fn a_limit_is_known_by_its_place_and_its_algorithm() {
    let redis = TestRedis::start().await;
    let (old, new) = (
        policy("places", "5/d; fixed_window 3/366d"),
        policy("places", "5/d; sliding_window_log 3/366d"),
    );
    for subject in subjects(&redis).await {
        let alice = key("alice");
        for _ in 0..3 {
            assert!(passes(&subject, &old, &alice).await);
        }

        assert_eq!(
            left(&subject, &new, &alice).await,
            [2, 3],
            "{}",
            subject.name
        );
    }
}

#[tokio::test]
async fn a_charge_that_replaces_the_state_of_another_algorithm_is_counted_and_logged() {
    let observed = Observations::listen();
    let replaced = |policy: &str| observed.counter(metrics::REPLACED_STATES, policy);
    let redis = TestRedis::start().await;
    let store = redis.store(Clock::system()).await;
    let changes = [
        ("10/d", "fixed_window 10/d"),
        ("10/d", "leaky_bucket 10/d"),
        ("fixed_window 10/d", "sliding_window_log 10/d"),
        ("sliding_window_counter 10/d", "concurrency 5"),
        ("9/d; 10/d", "9/d; fixed_window 10/d"),
    ];

    for (number, (before, after)) in changes.into_iter().enumerate() {
        let name = format!("changed-{number}");
        let (before, after) = (policy(&name, before), policy(&name, after));
        let key = key("a");
        let hit = async |policy, cost| {
            let hit = Hit::new(policy, &key).cost(cost);
            store.hit(hit).await.expect("the store decides");
        };

        hit(&before, 1).await;
        hit(&before, 1).await;
        hit(&after, 0).await;
        assert_eq!(replaced(&name), 0, "{after:?}: a peek replaces nothing");
        hit(&after, 1).await;
        hit(&after, 1).await;
        assert_eq!(replaced(&name), 1, "{after:?}");
        hit(&before, 1).await;
        assert_eq!(replaced(&name), 2, "{before:?}");
    }

    let lines = observed.lines("has another algorithm");
    assert_eq!(lines.len(), 1, "one line a minute: {lines:?}");
    assert!(lines[0].contains("changed-0"), "{lines:?}");
}

#[tokio::test]
async fn charges_in_batches_and_joint_hits_report_what_they_replace() {
    let observed = Observations::listen();
    let replaced = |policy: &str| observed.counter(metrics::REPLACED_STATES, policy);
    let redis = TestRedis::start().await;
    let store = Arc::new(redis.store(Clock::system()).await);
    let before = policy("changed", "10/d");
    let after = policy("changed", "fixed_window 10/d");
    let keys: Vec<Key> = (0..64).map(|number| key(&format!("k{number}"))).collect();
    for key in &keys {
        store.hit(Hit::new(&before, key)).await.unwrap();
    }

    let hits = keys[1..].iter().cloned().map(|key| {
        let (store, after) = (Arc::clone(&store), after.clone());
        tokio::spawn(async move { store.hit(Hit::new(&after, &key)).await.unwrap() })
    });
    for hit in hits.collect::<Vec<_>>() {
        hit.await.unwrap();
    }
    assert_eq!(replaced("changed"), 63);

    let fresh = policy("fresh", "fixed_window 10/d");
    let members = [
        JointHit::new(Hit::new(&fresh, &keys[0])),
        JointHit::new(Hit::new(&after, &keys[0])),
    ];
    store.hit_joint(&members).await.unwrap();
    assert_eq!((replaced("changed"), replaced("fresh")), (64, 0));
}
