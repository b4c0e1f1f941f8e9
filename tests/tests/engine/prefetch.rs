//! Prefetching on both stores, and eight processes that prefetch from one Redis.

use std::time::Duration;

use ratelimit_core::{
    KeySet, Limiter, Policy, Timestamp,
    store::{Hit, Overdraft, PrefetchRequest},
};
use ratelimit_tests::{
    chaos::Observations,
    model::{Model, ModelHit, Spec, prefetch::beyond},
    prefetch_instance::{InstanceHits, PrefetchInstance},
    random::Random,
    redis::TestRedis,
    traces::{Aim, Step, Trace, TracedHit, to_soft_policy},
};

use crate::stores::{TestStore, key, told};

const STEPS: u64 = 20_000;
const STEPS_PER_TRACE: u64 = 30;

/// Compares the grants of `STEPS` calls on memory and Redis, field by field, and their charges with the model.
async fn compare(aim: Aim, name: &str) {
    let redis = TestRedis::start().await;
    let (mut compared, mut granted, mut denied) = (0, 0, 0);
    for seed in 0..STEPS / STEPS_PER_TRACE {
        let subjects = TestStore::all(&redis).await;
        let mut trace = Trace::new(seed, aim);
        let mut random = Random::new(seed);
        let mut model = Model::new();
        for _ in 0..STEPS_PER_TRACE {
            let Step::Hit(mut hit) = trace.next_step() else {
                continue;
            };
            hit.limits.iter_mut().for_each(make_prefetchable);
            if seed % 4 > 0 {
                enlarge(&mut hit);
            }
            if random.one_in(3) {
                hit.cost = 0;
            }
            let expected = model.hit_with(&hit.limits, hit.now_us, hit.asked());
            let units =
                compare_step(&hit, request(&mut random), &mut model, &expected, &subjects).await;
            compared += 1;
            granted += u64::from(units > 0);
            denied += u64::from(!expected.overall.answer.is_allowed());
            trace.learn(expected);
        }
    }
    redis.assert_every_key_expires();
    println!("{name}: {compared} calls compared, {granted} gave units, {denied} were denied");
    assert!(
        granted > compared / 10,
        "a trace that gives nothing proves little"
    );
}

async fn compare_step(
    hit: &TracedHit,
    request: PrefetchRequest,
    model: &mut Model,
    expected: &ratelimit_tests::model::ModelDecision,
    subjects: &[TestStore],
) -> u64 {
    let policy = to_soft_policy("p", &hit.limits, hit.percent);
    let key = key("k");
    let overdraft = if hit.room {
        Overdraft::Allowed
    } else {
        Overdraft::Refused
    };
    let asked = Hit::new(&policy, &key).cost(hit.cost).overdraft(overdraft);
    let mut grants = Vec::new();
    for subject in subjects {
        subject.clock.set(Timestamp::from_micros(hit.now_us));
        let grant = subject.store.prefetch(asked, request).await;
        grants.push(grant.unwrap_or_else(|error| panic!("{}: {error:?}: {hit:?}", subject.name)));
    }
    assert_eq!(grants[0], grants[1], "{hit:?} {request:?}");
    let (binding, overall, limits) = told(grants[0].decision());
    let words = (expected.binding, expected.overall, expected.limits.clone());
    assert_eq!((binding, overall, limits), words, "{hit:?}");

    let units = grants[0].units();
    if units > 0 {
        assert!(expected.overall.answer.is_allowed(), "{hit:?}");
        let share = u128::from(request.share_percent());
        let cap = |spec: &Spec| u128::from(spec.limit()) * share / 100;
        assert!(hit.limits.iter().all(|spec| u128::from(units) <= cap(spec)));
        // The plain limits have room for the units behind the hit.
        let further = ModelHit {
            cost: units,
            percent: hit.percent,
            room: false,
            slot: 0,
        };
        let charged = model.hit_with(&hit.limits, hit.now_us, further);
        assert!(
            charged.overall.answer.is_allowed(),
            "{units} units: {hit:?}"
        );
    }
    units
}

fn request(random: &mut Random) -> PrefetchRequest {
    let want = random.one_of(&[4, 20, 1_000, 1 << 24]);
    let share = random.one_of(&[1, 5, 25, 50]);
    let horizon = random.one_of(&[1, 1_000, 50_000, 1_000_000]);
    let min_life = random.one_of(&[0, 0, 400, 100_000]);
    PrefetchRequest::new(random.range(1, want), u32::try_from(share).unwrap())
        .horizon(Duration::from_micros(horizon))
        .min_life(Duration::from_micros(min_life))
        .scarce(random.one_in(3))
}

/// Makes small limits a hundred times as large, so that a share of them is worth a call, and costs with them.
fn enlarge(hit: &mut TracedHit) {
    let enlarged: Vec<Spec> = hit.limits.iter().map(enlarged).collect();
    if enlarged
        .iter()
        .all(|spec| spec.throttled_grain_us(hit.percent).is_some())
    {
        hit.limits = enlarged;
        hit.cost = hit.cost.saturating_mul(60);
    }
}

fn enlarged(spec: &Spec) -> Spec {
    let mut spec = *spec;
    match &mut spec {
        Spec::TokenBucket {
            capacity, refill, ..
        }
        | Spec::LeakyBucket {
            capacity, refill, ..
        } => {
            *capacity = capacity.saturating_mul(100);
            *refill = refill.saturating_mul(100);
        }
        Spec::FixedWindow { limit, .. } | Spec::SlidingWindowCounter { limit, .. } => {
            *limit = limit.saturating_mul(100);
        }
        _ => {}
    }
    spec
}

/// Logs become counters, and no leaky bucket shapes.
fn make_prefetchable(spec: &mut Spec) {
    match *spec {
        Spec::LeakyBucket { ref mut police, .. } => *police = true,
        Spec::SlidingWindowLog {
            limit, period_us, ..
        } => {
            *spec = Spec::SlidingWindowCounter { limit, period_us };
        }
        _ => {}
    }
}

#[tokio::test]
async fn grants_of_each_algorithm_are_the_same_everywhere() {
    for (index, name) in [
        (0, "token_bucket"),
        (1, "leaky_bucket"),
        (2, "fixed_window"),
        (4, "sliding_window_counter"),
    ] {
        compare(Aim::at(index), name).await;
    }
}

#[tokio::test]
async fn grants_of_mixed_limits_are_the_same_everywhere() {
    let aim = Aim {
        limits: (2, 4),
        ..Aim::ANYTHING
    };
    compare(aim, "policies of 2 to 4 mixed limits").await;
}

#[tokio::test]
async fn grants_under_throttle_modes_are_the_same_everywhere() {
    let aim = Aim {
        throttles: true,
        ..Aim::ANYTHING
    };
    compare(aim, "limits with a ceiling").await;
}

#[tokio::test]
async fn a_memory_store_warns_once_of_each_policy_that_prefetches_nothing() {
    let observed = Observations::listen();
    for limits in ["1000/s", "fixed_window 1000/s", "1000/s; 2000/s by ip"] {
        for path in [
            "check", "peek", "dry_run", "reserve", "keys", "acquire", "announce",
        ] {
            let name = format!("{path}-{}", limits.len());
            let policy = Policy::parse(&name, limits).unwrap();
            let policy = policy.with_prefetch(5).unwrap();
            let (limiter, key) = (Limiter::in_memory(), key("k"));
            // A sampled hit, so that the sample is not that of the path.
            let _ = limiter
                .check(&Policy::parse("other", "1/s").unwrap(), &key)
                .await;
            for _ in 0..3 {
                match path {
                    "check" => drop(limiter.check(&policy, &key).await),
                    "peek" => drop(limiter.peek(&policy, &key).await),
                    "dry_run" => drop(limiter.dry_run(&policy, &key, 2).await),
                    "reserve" => drop(limiter.reserve(Hit::new(&policy, &key)).await),
                    "keys" => {
                        let keys = KeySet::new(key.clone()).with("ip", key.clone());
                        drop(limiter.check_keys(&policy, &keys).await);
                    }
                    "acquire" => drop(limiter.acquire(&policy, &key, Duration::ZERO).await),
                    _ => limiter.announce_policy(&policy),
                }
            }
            let told = observed.lines(&format!("{name:?}"));
            assert_eq!(told.len(), 1, "{limits} by {path}: {told:?}");
            assert!(told[0].contains("nothing is prefetched"), "{told:?}");
        }
    }
}

/// Eight processes hit one key for three seconds, at `rate` hits a second together.
fn run_processes(redis: &TestRedis, limits: &str, rate: u64) -> InstanceHits {
    let prefix = format!("prefetch-{}", limits.len());
    let start = |_| {
        let binary = env!("CARGO_BIN_EXE_prefetch_instance");
        PrefetchInstance::start(binary, [redis.url(), &prefix, limits], [rate / 8, 3_000])
    };
    let mut running: Vec<PrefetchInstance> = (0..8).map(start).collect();
    let mut all = InstanceHits::default();
    for process in &mut running {
        all.add(process.hits());
    }
    all.passed.sort_unstable();
    all
}

#[tokio::test]
async fn eight_processes_with_prefetch_never_over_admit() {
    let second = 1_000_000;
    let bucket = Spec::TokenBucket {
        capacity: 4_000,
        refill: 4_000,
        period_us: second,
    };
    let window = Spec::FixedWindow {
        limit: 4_000,
        period_us: second,
    };
    let counter = Spec::SlidingWindowCounter {
        limit: 4_000,
        period_us: second,
    };
    let minute = Spec::FixedWindow {
        limit: 100_000,
        period_us: 60 * second,
    };
    for (text, limits) in [
        ("4000/s", vec![bucket]),
        ("fixed_window 4000/s", vec![window]),
        ("sliding_window_counter 4000/s", vec![counter]),
        ("4000/s; fixed_window 100000/min", vec![bucket, minute]),
    ] {
        let redis = TestRedis::start().await;
        let fleet = run_processes(&redis, text, 12_000);
        // Law 1: the exact model lets all of them pass at their times.
        let beyond = beyond(&limits, &fleet.passed);
        // The second second of the server's clock: all instances are warm, and none has ended.
        let first = fleet.passed[0].next_multiple_of(1_000_000) + 1_000_000;
        let steady = fleet
            .passed
            .iter()
            .filter(|now| (first..first + 1_000_000).contains(*now));
        let steady = steady.count();
        println!(
            "{text}: {} hits, {} from memory, {} passed, {steady} of 4,000 in a whole second, {beyond} beyond the limit",
            fleet.hits,
            fleet.prefetched,
            fleet.passed.len(),
        );
        assert_eq!(beyond, 0, "{text}");
        // A machine whose round trips are longer than half a hold prefetches little, so how much is a row of the bench
        // (`fleet`). 78 % to 99 % were seen from memory, and at least 3,920 in a second.
        assert!(fleet.prefetched > 0, "{text}");
        assert!(steady >= 2_000, "{text}: {steady} passed in a second");
    }
}
