//! A limiter that remembers denials gives the answers of one that does not, and asks Redis seldom.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ratelimit_core::{
    Clock, Decision, Key, KeySet, Limiter, Outcome, Policy, Reservation, Timestamp, Verdict,
    store::{Adjustment, Charged, Hit, Overdraft, Receipt, Settlement, Store, StoreFuture},
};
use ratelimit_tests::{
    model::{self, Model, ModelMark, ModelReceipt},
    random::Random,
    redis::TestRedis,
    traces::{ALGORITHMS, Aim, Step, Trace, TracedHit, TracedSettle, to_soft_policy},
};

use crate::stores::{TestStore, key, micros, policy};

const STEPS: u64 = 4_000;
const STEPS_PER_TRACE: u64 = 40;
const SECOND: u64 = 1_000_000;

/// A store that counts how often it is asked.
#[derive(Clone, Debug)]
struct Counted {
    store: Arc<dyn Store>,
    asked: Arc<AtomicU64>,
}

impl Counted {
    fn new(store: Arc<dyn Store>) -> Counted {
        Counted {
            store,
            asked: Arc::default(),
        }
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Store for Counted {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.store.hit(hit)
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        self.store.settle(receipt, change)
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        self.store.reset(policy, keys)
    }

    fn manual_clock(&self) -> Option<Clock> {
        self.store.manual_clock()
    }
}

/// The same past under two keys: one is told what its limiter remembers, the other what Redis says.
struct Twins {
    limiters: [Limiter; 2],
    keys: [Key; 2],
    counted: Counted,
    clock: Clock,
    charges: Vec<(ModelReceipt, [Reservation; 2])>,
    hits: u64,
    denied: u64,
}

impl Twins {
    async fn new(redis: &TestRedis) -> Twins {
        let subject = TestStore::redis(redis).await;
        let counted = Counted::new(Arc::clone(&subject.store));
        let asking = Limiter::new(subject.store).without_deny_cache();
        Twins {
            limiters: [Limiter::new(counted.clone()), asking],
            keys: [key("remembered"), key("asked")],
            counted,
            clock: subject.clock,
            charges: Vec::new(),
            hits: 0,
            denied: 0,
        }
    }

    async fn play(&mut self, seed: u64, aim: Aim) {
        let mut trace = Trace::new(seed, aim);
        let mut random = Random::new(seed);
        let mut model = Model::new();
        for step in 0..STEPS_PER_TRACE {
            if random.one_in(20) {
                model.reset(micros(self.clock.now().since(Timestamp::default())));
                self.reset().await;
            }
            match trace.next_step() {
                Step::Hit(hit) => {
                    let expected = model.hit_with(&hit.limits, hit.now_us, hit.asked());
                    let marks = expected.marks.clone();
                    trace.learn(expected);
                    let place = format!("step {step} of seed {seed}: {hit:?}");
                    let denied = self.hit(&hit, marks, &place).await;
                    if let Outcome::Denied { retry_after } = denied.outcome {
                        self.insist(&hit, micros(retry_after), &mut random).await;
                    }
                }
                Step::Settle(settle) => {
                    model.settle(&settle.receipt, settle.now_us, settle.change);
                    self.settle(&settle).await;
                }
                Step::Reset { now_us } => {
                    model.reset(now_us);
                    self.clock.set(Timestamp::from_micros(now_us));
                    self.reset().await;
                }
            }
        }
    }

    async fn reset(&self) {
        let any = policy("p", "1/s");
        for (limiter, key) in self.limiters.iter().zip(&self.keys) {
            limiter.reset(&any, key).await.unwrap();
        }
    }

    /// Asks again until the wait of a denial is over, for about as much.
    async fn insist(&mut self, denied: &TracedHit, wait_us: u64, random: &mut Random) {
        let mut moments = [
            0,
            1,
            random.range(0, wait_us),
            random.range(0, wait_us.min(SECOND)),
            wait_us.min(SECOND) - 1,
            wait_us - 1,
            wait_us,
        ];
        moments.sort_unstable();
        for later_us in moments {
            let mut hit = denied.clone();
            hit.now_us += later_us;
            hit.cost = match random.range(1, 8) {
                1 => denied.cost.saturating_add(1),
                2 => denied.cost.saturating_mul(2),
                3 => random.range(0, denied.cost.min(SECOND)),
                _ => denied.cost,
            };
            let place = format!("{later_us} us later: {hit:?}");
            self.hit(&hit, Vec::new(), &place).await;
        }
    }

    async fn hit(&mut self, hit: &TracedHit, marks: Vec<ModelMark>, place: &str) -> Decision {
        self.clock.set(Timestamp::from_micros(hit.now_us));
        let policy = to_soft_policy("p", &hit.limits, hit.percent);
        let overdraft = if hit.room {
            Overdraft::Allowed
        } else {
            Overdraft::Refused
        };
        let mut charges = Vec::new();
        let mut decisions = Vec::new();
        for (limiter, key) in self.limiters.iter().zip(&self.keys) {
            let asked = Hit::new(&policy, key).cost(hit.cost).overdraft(overdraft);
            let (verdict, charge) = limiter.reserve(asked).await;
            decisions.push(checked(verdict));
            charges.extend(charge);
        }
        assert_alike(&decisions[0], &decisions[1], place);
        self.hits += 1;
        self.denied += u64::from(matches!(decisions[1].outcome, Outcome::Denied { .. }));
        if let Ok(charges) = <[Reservation; 2]>::try_from(charges) {
            let receipt = ModelReceipt {
                limits: hit.limits.clone(),
                percent: hit.percent,
                now_us: hit.now_us,
                cost: hit.cost,
                marks,
                slot: hit.slot,
            };
            self.charges.push((receipt, charges));
        }
        decisions.remove(1)
    }

    async fn settle(&mut self, settle: &TracedSettle) {
        self.clock.set(Timestamp::from_micros(settle.now_us));
        let known = |(receipt, _): &(ModelReceipt, _)| *receipt == settle.charged;
        let Some(place) = self.charges.iter().rposition(known) else {
            return;
        };
        match settle.change {
            model::Change::Settle { actual } => {
                for charge in self.charges.remove(place).1 {
                    charge.settle(actual).await.unwrap();
                }
            }
            model::Change::Release | model::Change::Renew => {
                for (limiter, charge) in self.limiters.iter().zip(&self.charges[place].1) {
                    limiter.release(charge.receipt()).await.unwrap();
                }
            }
        }
    }
}

fn checked(verdict: Verdict) -> Decision {
    match verdict {
        Verdict::Checked(decision) => decision,
        unchecked => panic!("{unchecked:?}"),
    }
}

/// What is remembered is no other answer, and names no longer wait.
fn assert_alike(remembered: &Decision, asked: &Decision, place: &str) {
    let place = format!("{remembered:?}\n{asked:?}\n{place}");
    let kind = |decision: &Decision| std::mem::discriminant(&decision.outcome);
    assert_eq!(kind(remembered), kind(asked), "{place}");
    assert!(remembered.retry_after() <= asked.retry_after(), "{place}");
    assert_eq!(remembered.now, asked.now, "{place}");
    for (ours, theirs) in remembered.limits().zip(asked.limits()) {
        assert_eq!(ours.limit, theirs.limit, "{place}");
        assert!(ours.remaining <= theirs.remaining, "{place}");
        assert!(ours.reset_after <= theirs.reset_after, "{place}");
    }
}

async fn compare(aim: Aim, name: &str) {
    let redis = TestRedis::start().await;
    let (mut hits, mut denied, mut asked) = (0, 0, 0);
    for seed in 0..STEPS / STEPS_PER_TRACE {
        let mut twins = Twins::new(&redis).await;
        twins.play(seed, aim).await;
        hits += twins.hits;
        denied += twins.denied;
        asked += twins.counted.asked();
    }
    let remembered = hits - asked;
    println!("{name}: {hits} hits compared, {denied} of them denied, {remembered} remembered");
    assert!(
        remembered > denied / 5,
        "what is seldom remembered proves little"
    );
}

#[tokio::test]
async fn a_token_bucket_answers_as_if_nothing_were_remembered() {
    compare(Aim::at(0), ALGORITHMS[0]).await;
}

#[tokio::test]
async fn a_leaky_bucket_answers_as_if_nothing_were_remembered() {
    compare(Aim::at(1), ALGORITHMS[1]).await;
}

#[tokio::test]
async fn a_fixed_window_answers_as_if_nothing_were_remembered() {
    compare(Aim::at(2), ALGORITHMS[2]).await;
}

#[tokio::test]
async fn a_sliding_window_log_answers_as_if_nothing_were_remembered() {
    compare(Aim::at(3), ALGORITHMS[3]).await;
}

#[tokio::test]
async fn a_sliding_window_counter_answers_as_if_nothing_were_remembered() {
    compare(Aim::at(4), ALGORITHMS[4]).await;
}

#[tokio::test]
async fn policies_of_all_kinds_answer_as_if_nothing_were_remembered() {
    let aim = Aim {
        concurrency: false,
        ..Aim::EVERYTHING
    };
    compare(aim, "policies of all kinds, settled and throttled").await;
}

#[tokio::test]
async fn a_reset_by_another_instance_shows_after_a_second() {
    let redis = TestRedis::start().await;
    let TestStore { store, clock, .. } = TestStore::redis(&redis).await;
    let (here, elsewhere) = (Limiter::new(Arc::clone(&store)), Limiter::new(store));
    let (window, alice) = (policy("reset", "fixed_window 1/h"), key("alice"));
    for _ in 0..3 {
        let _ = here.check(&window, &alice).await;
    }

    elsewhere.reset(&window, &alice).await.unwrap();

    clock.advance(Duration::from_micros(999_999));
    assert!(!here.check(&window, &alice).await.is_allowed());
    clock.advance(Duration::from_micros(1));
    assert!(here.check(&window, &alice).await.is_allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_one_denied_key_hardly_reaches_redis() {
    const TASKS: u64 = 16;
    const HITS: u64 = 2_000;
    let redis = TestRedis::start().await;
    let counted = Counted::new(Arc::new(redis.store(Clock::system()).await));
    let limiter = Limiter::new(counted.clone());
    let window = policy("flood", "sliding_window_log 5/h");
    for _ in 0..10 {
        let _ = limiter.check(&window, &key("mallory")).await;
    }
    let (asked, calls) = (counted.asked(), script_calls(&redis));

    let flood = (0..TASKS).map(|_| {
        let (limiter, window) = (limiter.clone(), window.clone());
        tokio::spawn(async move {
            for _ in 0..HITS {
                assert!(!limiter.check(&window, &key("mallory")).await.is_allowed());
            }
        })
    });
    for task in flood.collect::<Vec<_>>() {
        task.await.unwrap();
    }

    let asked = counted.asked() - asked;
    println!("{asked} of {} hits were asked", TASKS * HITS);
    assert!(asked <= TASKS * HITS / 100, "{asked}");
    assert!(script_calls(&redis) - calls <= asked);
}

/// How many scripts a server has run.
fn script_calls(redis: &TestRedis) -> u64 {
    let mut connection = redis.connection();
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut connection)
        .unwrap();
    let calls = stats.lines().filter_map(|line| {
        let (_, told) = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?;
        told.split(',').next()?.parse::<u64>().ok()
    });
    calls.sum()
}
