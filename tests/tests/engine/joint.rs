//! Joint hits: several policies, all or nothing.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use ratelimit_core::{
    FailureMode, JointVerdict, Key, KeySet, Limiter, MemoryStore, Policy, Throttle, Timestamp,
    UncheckedReason, Verdict,
    store::{
        Adjustment, Charged, Hit, JointHit, JointRole, MAX_JOINT_HITS, Overdraft, Receipt,
        Settlement, Store, StoreError, StoreFuture,
    },
};
use ratelimit_tests::{
    model::{Model, ModelMember, ModelRole, hit_joint},
    redis::TestRedis,
    traces::{JointTrace, to_soft_policy},
};

use crate::stores::{TestStore, key, policy, told};

const TRACES: u64 = 500;
/// Short enough that the memory store never sweeps, which a clock that steps back could see.
const STEPS_PER_TRACE: u64 = 24;

#[tokio::test]
async fn a_joint_hit_is_the_same_in_the_model_in_memory_and_in_redis() {
    let redis = TestRedis::start().await;
    compare_traces(&redis, JointTrace::new).await;
}

#[tokio::test]
async fn a_joint_hit_on_fixed_windows_is_the_same_in_the_model_in_memory_and_in_redis() {
    let redis = TestRedis::start().await;
    compare_traces(&redis, JointTrace::of_windows).await;
}

#[tokio::test]
async fn a_joint_hit_on_fixed_windows_has_a_script_that_leaves_unusual_values_to_the_general_one() {
    let redis = TestRedis::start().await;
    let subject = TestStore::redis(&redis).await;
    let scripts = || {
        let info: String = redis.query("INFO", "memory");
        let count = info.split_once("number_of_cached_scripts:").unwrap().1;
        count.lines().next().unwrap().parse::<u64>().unwrap()
    };
    let (one, two) = (
        policy("one", "fixed_window 9/h"),
        policy("two", "fixed_window 9/min"),
    );
    let key = key("k");
    let members = [must(&one, &key), must(&two, &key)];
    let before = scripts();

    for remaining in [8, 7] {
        let decisions = subject.store.hit_joint(&members).await.unwrap();
        let left: Vec<u64> = decisions
            .iter()
            .map(|decision| decision.remaining)
            .collect();
        assert_eq!(left, [remaining, remaining]);
    }
    assert_eq!(scripts(), before + 1, "the fast script alone");

    // The value of a policy with another limit in the same place.
    let bucket = policy("one", "5/h; fixed_window 9/h");
    subject.store.hit(Hit::new(&bucket, &key)).await.unwrap();
    let known = scripts();
    let decisions = subject.store.hit_joint(&members).await.unwrap();
    let left: Vec<u64> = decisions
        .iter()
        .map(|decision| decision.remaining)
        .collect();
    assert_eq!(left, [8, 6], "the first limit starts fresh");
    assert_eq!(
        scripts(),
        known,
        "the general script, which is that of single hits"
    );
}

async fn compare_traces(redis: &TestRedis, trace: fn(u64) -> JointTrace) {
    let (mut passed, mut denied) = (0, 0);
    for seed in 0..TRACES {
        let subjects = TestStore::all(redis).await;
        let mut trace = trace(seed);
        let mut models = vec![Model::new(); JointTrace::BUDGETS];
        for step in 0..STEPS_PER_TRACE {
            let (now_us, members) = trace.next_joint();
            let place = format!("step {step} of seed {seed}");
            if compare(&mut models, now_us, &members, &subjects, &place).await {
                passed += 1;
            } else {
                denied += 1;
            }
        }
    }
    redis.assert_every_key_expires();
    println!("joint hits: {passed} passed, {denied} denied");
    let few = TRACES * STEPS_PER_TRACE / 8;
    assert!(
        passed > few && denied > few,
        "{passed} passed, {denied} denied"
    );
}

/// Compares one joint hit on all subjects with the model, and returns whether it passed.
async fn compare(
    models: &mut Vec<Model>,
    now_us: u64,
    members: &[ModelMember],
    subjects: &[TestStore],
    place: &str,
) -> bool {
    let (passes, expected) = hit_joint(models, members, now_us);
    let policies = members.iter().map(|member| {
        let name = format!("p{}", member.budget);
        to_soft_policy(&name, &member.limits, member.asked.percent)
    });
    let policies: Vec<Policy> = policies.collect();
    let key = key("k");
    let hits = members.iter().zip(&policies).map(|(member, policy)| {
        let hit = Hit::new(policy, &key)
            .cost(member.asked.cost)
            .slot(member.asked.slot)
            .overdraft(if member.asked.room {
                Overdraft::Allowed
            } else {
                Overdraft::Refused
            });
        let hit = if member.is_dry { hit.dry_run() } else { hit };
        JointHit::new(hit).role(match member.role {
            ModelRole::Must => JointRole::Must,
            ModelRole::Any => JointRole::Any,
            ModelRole::Watch => JointRole::Watch,
        })
    });
    let hits: Vec<JointHit<'_>> = hits.collect();
    for subject in subjects {
        subject.clock.set(Timestamp::from_micros(now_us));
        let decisions = subject.store.hit_joint(&hits).await.unwrap();
        for (index, (decision, expected)) in decisions.iter().zip(&expected).enumerate() {
            let (binding, overall, limits) = told(decision);
            assert_eq!(
                (binding, overall, limits, decision.is_over),
                (
                    expected.binding,
                    expected.overall,
                    expected.limits.clone(),
                    expected.over
                ),
                "{}, member {index} at {place}, which passes: {passes}: {members:?}",
                subject.name
            );
        }
    }
    passes
}

/// A member of cost 1 that must fit.
fn must<'a>(policy: &'a Policy, key: &'a Key) -> JointHit<'a> {
    JointHit::new(Hit::new(policy, key))
}

async fn check(limiter: &Limiter, members: &[JointHit<'_>]) -> JointVerdict {
    limiter.check_joint(members).unwrap().await
}

fn charged(verdict: &JointVerdict) -> Vec<bool> {
    let members = verdict.members.iter();
    members.map(|member| member.is_charged).collect()
}

fn allowed(verdict: &JointVerdict) -> Vec<bool> {
    let decisions = verdict
        .members
        .iter()
        .map(|member| member.verdict.decision());
    decisions
        .map(|decision| decision.unwrap().is_allowed())
        .collect()
}

async fn remaining(limiter: &Limiter, policy: &Policy, key: &Key) -> u64 {
    let peeked = limiter.peek(policy, key).await;
    peeked.decision().unwrap().remaining
}

/// A limiter on each store, on the clock of its server or process.
async fn limiters(redis: &TestRedis) -> [Limiter; 2] {
    let stores = TestStore::all(redis).await;
    stores.map(|subject| Limiter::new(subject.store))
}

#[tokio::test]
async fn a_denied_joint_hit_charges_no_member() {
    let redis = TestRedis::start().await;
    let (user, route) = (policy("user", "5/min; 9/h"), policy("route", "1/min"));
    let (alice, search) = (key("alice"), key("search"));
    let members = [must(&user, &alice), must(&route, &search)];
    for limiter in limiters(&redis).await {
        let first = check(&limiter, &members).await;
        let second = check(&limiter, &members).await;

        assert!(first.is_allowed && !second.is_allowed);
        assert_eq!(charged(&first), [true, true]);
        assert_eq!(charged(&second), [false, false]);
        assert_eq!(allowed(&second), [true, false]);
        assert_eq!(remaining(&limiter, &user, &alice).await, 4);
        assert_eq!(remaining(&limiter, &route, &search).await, 0);
    }
}

#[tokio::test]
async fn one_of_any_must_fit_and_a_watcher_never_denies() {
    let redis = TestRedis::start().await;
    let (one, two) = (policy("one", "1/h"), policy("two", "2/h"));
    let (must_fit, watched) = (policy("must", "9/h"), policy("watched", "1/h"));
    let key = key("k");
    let members = [
        must(&watched, &key).role(JointRole::Watch),
        must(&one, &key).role(JointRole::Any),
        must(&two, &key).role(JointRole::Any),
        must(&must_fit, &key),
    ];
    for limiter in limiters(&redis).await {
        let verdicts = [
            check(&limiter, &members).await,
            check(&limiter, &members).await,
            check(&limiter, &members).await,
        ];

        assert_eq!(charged(&verdicts[0]), [true; 4]);
        assert_eq!(charged(&verdicts[1]), [false, false, true, true]);
        assert!(verdicts[1].is_allowed && !verdicts[2].is_allowed);
        assert_eq!(charged(&verdicts[2]), [false; 4]);
        assert_eq!(remaining(&limiter, &must_fit, &key).await, 7);
    }
}

#[tokio::test]
async fn a_policy_in_shadow_mode_watches() {
    let shadow = policy("shadow", "1/h").shadow();
    let (real, key) = (policy("real", "9/h"), key("k"));
    let members = [must(&shadow, &key), must(&real, &key)];
    let limiter = Limiter::in_memory();
    assert!(check(&limiter, &members).await.is_allowed);

    let second = check(&limiter, &members).await;

    assert!(second.is_allowed);
    assert_eq!(charged(&second), [false, true]);
}

#[tokio::test]
async fn two_members_on_one_budget_must_both_fit() {
    let redis = TestRedis::start().await;
    let (policy, key) = (policy("p", "5/h; concurrency 9"), key("k"));
    let pair = [
        JointHit::new(Hit::new(&policy, &key).cost(3)),
        JointHit::new(Hit::new(&policy, &key).cost(3)),
    ];
    let fitting = [pair[0], JointHit::new(Hit::new(&policy, &key).cost(2))];
    for limiter in limiters(&redis).await {
        let denied = check(&limiter, &pair).await;
        assert!(!denied.is_allowed);
        assert_eq!(allowed(&denied), [true, false]);
        assert_eq!(remaining(&limiter, &policy, &key).await, 5);

        assert!(check(&limiter, &fitting).await.is_allowed);
        assert_eq!(remaining(&limiter, &policy, &key).await, 0);
    }
}

#[tokio::test]
async fn a_meter_is_recorded_beyond_its_limit_and_a_look_is_not() {
    let redis = TestRedis::start().await;
    let soft = Throttle::Soft { percent: 10_000 };
    let meter = policy("meter", "fixed_window 5/h").with_throttle(soft);
    let (meter, key) = (meter.unwrap(), key("k"));
    let request = policy("request", "9/h");
    let reading = Hit::new(&meter, &key).cost(8).overdraft(Overdraft::Allowed);
    let look = Hit::new(&meter, &key)
        .overdraft(Overdraft::Refused)
        .dry_run();
    for limiter in limiters(&redis).await {
        let read = check(&limiter, &[JointHit::new(reading), must(&request, &key)]).await;

        assert!(read.is_allowed && charged(&read) == [true, true]);
        assert!(read.members[0].verdict.decision().unwrap().is_over);
        let looked = check(&limiter, &[JointHit::new(look), must(&request, &key)]).await;
        assert!(!looked.is_allowed);
        let peek = [JointHit::new(reading.cost(0)), must(&request, &key)];
        let peeked = check(&limiter, &peek).await;
        assert_eq!(charged(&peeked), [false, true]);
        assert_eq!(remaining(&limiter, &request, &key).await, 7);
    }
}

#[tokio::test]
async fn a_joint_hit_has_1_to_64_members() {
    let (policy, key) = (policy("p", "100/h"), key("k"));
    let limiter = Limiter::in_memory();
    let members = vec![must(&policy, &key); MAX_JOINT_HITS + 1];

    assert!(limiter.check_joint(&[]).is_err());
    let error = limiter.check_joint(&members).unwrap_err();
    assert_eq!(error.to_string(), "a joint hit has 1 to 64 members, not 65");
    assert!(check(&limiter, &members[1..]).await.is_allowed);
    assert_eq!(remaining(&limiter, &policy, &key).await, 36);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_tasks_spend_every_budget_alike() {
    const TASKS: usize = 8;
    const HITS: usize = 40;
    let redis = TestRedis::start().await;
    for limiter in limiters(&redis).await {
        let limiter = limiter.without_deny_cache();
        let policies = [
            policy("a", "150/h"),
            policy("b", "300/h"),
            policy("c", "200/h"),
        ];
        let passed = Arc::new(AtomicU64::new(0));
        let tasks = (0..TASKS).map(|task| {
            let (limiter, policies) = (limiter.clone(), policies.clone());
            let passed = Arc::clone(&passed);
            tokio::spawn(async move {
                let key = key("k");
                for _ in 0..HITS {
                    // Each task names them in another order: a lock order of its own would deadlock.
                    let mut members: Vec<JointHit<'_>> =
                        policies.iter().map(|policy| must(policy, &key)).collect();
                    members.rotate_left(task % 3);
                    let verdict = check(&limiter, &members).await;
                    passed.fetch_add(u64::from(verdict.is_allowed), Ordering::Relaxed);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }

        assert_eq!(passed.load(Ordering::Relaxed), 150);
        let key = key("k");
        let mut left = Vec::new();
        for policy in &policies {
            left.push(remaining(&limiter, policy, &key).await);
        }
        assert_eq!(left, [0, 150, 50]);
    }
}

/// A store that does not answer.
#[derive(Debug)]
struct Down;

impl Store for Down {
    fn hit(&self, _: Hit<'_>) -> StoreFuture<Charged> {
        StoreFuture::ready(Err(StoreError::Overloaded))
    }

    fn hit_joint(&self, _: &[JointHit<'_>]) -> StoreFuture<Vec<Charged>> {
        StoreFuture::ready(Err(StoreError::Overloaded))
    }

    fn settle(&self, _: &Receipt, _: Adjustment) -> StoreFuture<Settlement> {
        StoreFuture::ready(Err(StoreError::Overloaded))
    }

    fn reset(&self, _: &Policy, _: &KeySet) -> StoreFuture<()> {
        StoreFuture::ready(Err(StoreError::Overloaded))
    }
}

#[tokio::test]
async fn without_the_store_each_member_is_decided_by_its_own_failure_mode() {
    let with_mode = |name: &str, mode| policy(name, "2/h").with_failure_mode(mode);
    let open = with_mode("open", FailureMode::Open);
    let closed = with_mode("closed", FailureMode::Closed);
    let local = with_mode("local", FailureMode::Local);
    let instances = NonZeroU32::new(2).unwrap();
    let share = with_mode("share", FailureMode::LocalShare { instances });
    let key = key("k");
    let limiter = Limiter::new(Down);

    let denied = check(&limiter, &[must(&local, &key), must(&closed, &key)]).await;
    let watched = [
        must(&local, &key),
        must(&open, &key),
        must(&share, &key),
        must(&closed, &key).role(JointRole::Watch),
    ];
    let passed = check(&limiter, &watched).await;
    let exhausted = check(&limiter, &watched).await;

    assert!(!denied.is_allowed);
    assert_eq!(charged(&denied), [false, false]);
    assert!(passed.is_allowed);
    assert_eq!(charged(&passed), [true, false, true, false]);
    assert!(matches!(
        passed.members[1].verdict,
        Verdict::Unchecked {
            mode: FailureMode::Open,
            reason: UncheckedReason::Overloaded,
            ..
        }
    ));
    // The share of two instances is one unit, so the second joint hit is denied and leaves the others as they were.
    assert!(!exhausted.is_allowed);
    assert_eq!(charged(&exhausted), [false; 4]);
    assert_eq!(remaining(&limiter, &local, &key).await, 1);
}

#[tokio::test]
async fn a_store_without_joint_hits_leaves_them_to_the_failure_mode() {
    #[derive(Debug)]
    struct Plain(MemoryStore);

    impl Store for Plain {
        fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
            self.0.hit(hit)
        }

        fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
            self.0.reset(policy, keys)
        }
    }

    let limiter = Limiter::new(Plain(MemoryStore::new())).failure_mode(FailureMode::Closed);
    let (policy, key) = (policy("p", "5/h"), key("k"));

    let verdict = check(&limiter, &[must(&policy, &key)]).await;

    assert!(!verdict.is_allowed);
    assert!(matches!(
        verdict.members[0].verdict,
        Verdict::Unchecked {
            reason: UncheckedReason::Refused,
            ..
        }
    ));
}

/// A denied joint hit leaves a copy of the budgets, which may take less memory.
#[tokio::test]
async fn joint_hits_that_pass_and_fail_in_turn_are_counted_with_the_memory_that_they_take() {
    let store = MemoryStore::new();
    let log = policy("log", "sliding_window_log 1000/d");
    let spent = policy("spent", "fixed_window 1/366d");
    let subject = key("k");
    let hit = |policy| JointHit::new(Hit::new(policy, &subject));
    assert!(
        store
            .hit(Hit::new(&spent, &subject))
            .await
            .unwrap()
            .is_allowed()
    );

    for _ in 0..500 {
        assert!(store.hit_joint(&[hit(&log)]).await.unwrap()[0].is_allowed());
        let denied = store.hit_joint(&[hit(&log), hit(&spent)]).await.unwrap();
        assert!(!denied[1].is_allowed());
    }

    // 500 stamps of 8 bytes, with as much unused capacity, and two keys.
    let bytes = store.stats().bytes;
    assert!((4_000..10_000).contains(&bytes), "{bytes} bytes");
}
