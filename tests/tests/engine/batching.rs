//! Hits that share a call are answered as if each had been sent by itself.

use std::time::Duration;

use futures_util::future::join_all;
use ratelimit_core::{
    Clock, Decision, Key, Policy, RedisStore, Throttle, Timestamp,
    store::{Hit, Overdraft, Store, StoreError},
};
use ratelimit_tests::{
    random::Random,
    redis::{TestRedis, connected},
};

use crate::stores::{key, policy};

const LIMITS: [&str; 10] = [
    "5/s",
    "token_bucket 20/min burst 7",
    "leaky_bucket 10/s",
    "fixed_window 9/min",
    "sliding_window_log 12/min",
    "sliding_window_counter 15/min",
    "sliding_window_log 6/min count-denied",
    "5/s; fixed_window 20/min",
    "fixed_window 8/s; sliding_window_counter 30/min; sliding_window_log 50/h",
    "4/s; penalty_box 3/min for 30s growing",
];
const KEYS: [&str; 3] = ["a", "b", "c"];
const ROUNDS: u64 = 600;

/// What hits of a crowd have in common that can share a call.
#[derive(Clone, Debug)]
struct Kind {
    policy: Policy,
    overdraft: Overdraft,
    cost: u64,
    is_foreseen: bool,
}

impl Kind {
    /// Now and then the limits of a policy change.
    fn random(random: &mut Random, number: u64, epoch: u64) -> Kind {
        let place = usize::try_from(number + epoch).unwrap();
        let named = policy(&format!("p{number}"), LIMITS[place % LIMITS.len()]);
        let percent = [0, 0, 25][place % 3];
        Kind {
            policy: named.with_throttle(Throttle::Soft { percent }).unwrap(),
            overdraft: random.one_of(&[Overdraft::Allowed, Overdraft::Refused]),
            cost: random.one_of(&[1, 1, 1, 1, 2, 3, 0, 1_000_000_000]),
            is_foreseen: random.one_in(8),
        }
    }
}

/// One hit of a crowd that comes at the same moment.
#[derive(Clone, Debug)]
struct OneHit {
    kind: Kind,
    key: Key,
}

impl OneHit {
    fn hit(&self) -> Hit<'_> {
        let kind = &self.kind;
        let hit = Hit::new(&kind.policy, &self.key)
            .cost(kind.cost)
            .overdraft(kind.overdraft);
        if kind.is_foreseen { hit.dry_run() } else { hit }
    }
}

/// Some hits of all kinds on a key that is not among the others.
fn elsewhere(kinds: &[Kind]) -> Vec<OneHit> {
    let hits = kinds.iter().flat_map(|kind| [kind; 3]);
    hits.map(|kind| OneHit {
        kind: kind.clone(),
        key: key("elsewhere"),
    })
    .collect()
}

fn on_each_key(kinds: &[Kind]) -> Vec<OneHit> {
    let hits = kinds.iter().flat_map(|kind| KEYS.map(|name| (kind, name)));
    hits.map(|(kind, name)| OneHit {
        kind: kind.clone(),
        key: key(name),
    })
    .collect()
}

/// All at once: the first of each kind goes by itself, and the others share calls.
async fn at_once(store: &RedisStore, hits: &[OneHit]) -> Vec<Decision> {
    let answers = join_all(hits.iter().map(|hit| store.hit(hit.hit()))).await;
    let answers = answers.into_iter().map(Result::unwrap);
    answers.map(|charged| charged.decision).collect()
}

async fn one_by_one(store: &RedisStore, hits: &[OneHit]) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for hit in hits {
        decisions.push(store.hit(hit.hit()).await.unwrap().decision);
    }
    decisions
}

/// How many scripts the server has run.
fn script_calls(redis: &TestRedis) -> u64 {
    let text: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut redis.connection())
        .unwrap();
    let calls = |line: &str| {
        let rest = line.strip_prefix("cmdstat_eval")?;
        let count = rest.split_once("calls=")?.1.split(',').next()?;
        count.parse::<u64>().ok()
    };
    text.lines().filter_map(calls).sum()
}

#[tokio::test]
async fn hits_that_share_a_call_are_answered_as_if_they_did_not() {
    let redis = TestRedis::start().await;
    let clock = Clock::manual(Timestamp::from_secs(1_000_000));
    let config = redis.config().clock(clock.clone()).unbatched_calls(1);
    let crowd = connected(config).await;
    let config = redis.config().clock(clock.clone());
    let plain = connected(config.unbatched_calls(usize::MAX)).await;
    let mut random = Random::new(8);
    let (mut compared, mut denied, mut shared_calls) = (0, 0, 0);

    for round in 0..ROUNDS {
        clock.advance(Duration::from_millis(
            random.one_of(&[0, 1, 250, 3_000, 61_000]),
        ));
        let kinds: Vec<Kind> = (0..random.range(1, 3))
            .map(|number| Kind::random(&mut random, number, round / 15))
            .collect();
        let hits: Vec<OneHit> = (0..random.range(2, 90))
            .map(|number| OneHit {
                kind: kinds[usize::try_from(number).unwrap() % kinds.len()].clone(),
                key: key(random.one_of(&KEYS)),
            })
            .collect();

        // A script that the server does not know yet is sent again, and what was written under other
        // limits is asked for once more: other hits may overtake both.
        at_once(&crowd, &elsewhere(&kinds)).await;
        let one_each = on_each_key(&kinds);
        let converted = one_by_one(&crowd, &one_each).await;
        assert_eq!(converted, one_by_one(&plain, &one_each).await);
        let before = script_calls(&redis);
        let together = at_once(&crowd, &hits).await;
        shared_calls += script_calls(&redis) - before;
        let apart = one_by_one(&plain, &hits).await;

        for (place, (got, expected)) in together.iter().zip(&apart).enumerate() {
            let hit = &hits[place];
            assert_eq!(got, expected, "hit {place} of round {round}: {hit:?}");
            denied += u64::from(!expected.is_allowed());
            compared += 1;
        }
    }

    println!("{compared} hits compared, {denied} of them denied, in {shared_calls} calls");
    assert!(denied > compared / 10 && denied < compared * 9 / 10);
    assert!(shared_calls < compared / 2, "calls are shared");
    redis.assert_every_key_expires();
}

#[tokio::test]
async fn ready_hits_share_a_call_without_waiting_for_a_reply() {
    let redis = TestRedis::start().await;
    let store = connected(redis.config().unbatched_calls(2)).await;
    let limits = [policy("a", "100/h"), policy("b", "200/h")];
    let ask = async |count: usize| {
        let hits = (0..count).flat_map(|number| {
            let (store, key) = (&store, key(&format!("k{number}")));
            limits
                .iter()
                .map(move |limit| store.hit(Hit::new(limit, &key)))
        });
        let before = script_calls(&redis);
        for answer in join_all(hits).await {
            assert!(answer.unwrap().is_allowed());
        }
        script_calls(&redis) - before
    };
    ask(3).await;

    assert_eq!(ask(1).await, 2);
    assert_eq!(
        ask(60).await,
        6,
        "two alone, and the others together, of each"
    );
}

#[tokio::test]
async fn by_default_four_hits_are_sent_by_themselves_before_others_are_batched() {
    let redis = TestRedis::start().await;
    let store = connected(redis.config()).await;
    let limit = policy("a", "100/h");
    let calls_of = async |count: usize| {
        let keys = (0..count).map(|number| key(&format!("k{number}")));
        let hits: Vec<_> = keys.map(|key| store.hit(Hit::new(&limit, &key))).collect();
        let before = script_calls(&redis);
        for answer in join_all(hits).await {
            assert!(answer.unwrap().is_allowed());
        }
        script_calls(&redis) - before
    };
    calls_of(64).await;

    assert_eq!(calls_of(4).await, 4);
    assert_eq!(calls_of(60).await, 5, "four alone, and the others together");
}

async fn unreadable_keys_fail_alone(text: &str) {
    let redis = TestRedis::start().await;
    let config = redis.config().prefix("poison").unwrap().unbatched_calls(1);
    let store = connected(config).await;
    let limit = policy("p", text);
    let mut connection = redis.connection();
    for (command, name, value) in [
        ("RPUSH", "list", "x"),
        ("SET", "text", "not a state at all"),
    ] {
        let name = format!("poison:v1:p:{{key:{name}}}");
        let mut cmd = redis::cmd(command);
        let _: redis::Value = cmd.arg(name).arg(value).query(&mut connection).unwrap();
    }
    let ask_all = |names: &[&str]| {
        let hits = names
            .iter()
            .map(|name| store.hit(Hit::new(&limit, &key(name))));
        join_all(hits.collect::<Vec<_>>())
    };

    // The server learns the scripts.
    ask_all(&["first", "c", "list", "text"]).await;
    let before = script_calls(&redis);
    // So many that they are not spread over several calls.
    let others: Vec<String> = (0..40).map(|number| format!("other {number}")).collect();
    let mut names = vec!["first", "a", "list", "b", "text", "a"];
    names.extend(others.iter().map(String::as_str));
    let answers = ask_all(&names).await;
    // The first by itself, one for all others, and one more for each of the two.
    assert_eq!(script_calls(&redis) - before, 4);

    let remaining = answers[..6].iter().map(|answer| match answer {
        Ok(decision) => Some(decision.remaining),
        Err(StoreError::Refused { .. }) => None,
        Err(error) => panic!("{error:?}"),
    });
    let told: Vec<Option<u64>> = remaining.collect();
    assert_eq!(told, [Some(3), Some(4), None, Some(4), None, Some(3)]);
}

#[tokio::test]
async fn a_key_that_cannot_be_read_fails_alone() {
    unreadable_keys_fail_alone("5/h").await;
    unreadable_keys_fail_alone("fixed_window 5/366d").await;
    unreadable_keys_fail_alone("5/h; fixed_window 5/366d").await;
}

#[tokio::test]
async fn a_dropped_check_spends_nothing_and_does_not_affect_its_batch() {
    let redis = TestRedis::start().await;
    let store = connected(redis.config().unbatched_calls(1)).await;
    let limit = policy("p", "100/h");
    let shared = key("k");
    let mut calls: Vec<_> = (0..50)
        .map(|_| Box::pin(store.hit(Hit::new(&limit, &shared))))
        .collect();
    for call in &mut calls {
        assert!(futures_util::poll!(call).is_pending());
    }

    // Those who leave include the one whose call the others wait for.
    let mut place = 0;
    calls.retain(|_| {
        place += 1;
        place % 2 == 0
    });
    let stayed = calls.len() as u64;
    let answers = join_all(calls).await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.as_ref().unwrap().is_allowed())
    );
    let look = store.hit(Hit::new(&limit, &shared).cost(0)).await.unwrap();
    let spent = 100 - look.remaining;
    // The first was sent before it left.
    assert!((stayed..=stayed + 1).contains(&spent), "{spent} were spent");
}

#[tokio::test]
async fn hits_beyond_the_bound_are_turned_away_at_once() {
    let redis = TestRedis::start().await;
    let config = redis.config().unbatched_calls(1).max_in_flight(10);
    let store = connected(config).await;
    let limit = policy("p", "100/h");
    let shared = key("k");

    let answers = join_all((0..30).map(|_| store.hit(Hit::new(&limit, &shared)))).await;

    let turned_away = answers
        .iter()
        .filter(|answer| matches!(answer, Err(StoreError::Overloaded)));
    assert_eq!(turned_away.count(), 20);
}

#[test]
fn callers_survive_the_runtime_that_carries_their_hits() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (lasting, passing) = (runtime(), runtime());
    let redis = lasting.block_on(TestRedis::start());
    let store = lasting.block_on(connected(redis.config().unbatched_calls(1)));
    let limit = policy("p", "1000/h");
    let shared = key("k");

    // These wait in a runtime that ends, together with the call that is under way.
    for _ in 0..5 {
        let calls: Vec<_> = (0..100)
            .map(|_| store.hit(Hit::new(&limit, &shared)))
            .collect();
        for call in calls {
            passing.spawn(call);
        }
    }
    let calls: Vec<_> = (0..50)
        .map(|_| lasting.spawn(store.hit(Hit::new(&limit, &shared))))
        .collect();
    passing.shutdown_background();

    for call in calls {
        let answer = lasting.block_on(call).unwrap();
        assert!(answer.is_ok(), "{answer:?}");
    }
}
