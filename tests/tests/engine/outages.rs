//! What passes at most while a store is down and when it is back: the bounds of `docs/explain/failure.md`.
//!
//! Instances share a memory store over links that a schedule cuts. Which hits may pass is computed from the times at which
//! they passed, by definitions that share no code with the engine.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use ratelimit_core::{
    Clock, FailureMode, KeySet, Limiter, MemoryStore, Policy, Throttle, Timestamp, Verdict,
    store::{Adjustment, Charged, Hit, Receipt, Settlement, Store, StoreError, StoreFuture},
};
use ratelimit_tests::random::Random;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use crate::stores::{key, policy};

/// Each allows `LIMIT` at once, and as much in each `PERIOD`.
const TOKEN_BUCKET: &str = "token_bucket 20/s burst 100";
const LEAKY_BUCKET: &str = "leaky_bucket 20/s queue 100 police";
const FIXED_WINDOW: &str = "fixed_window 100/5s";
const LOG: &str = "sliding_window_log 100/5s";
const COUNTER: &str = "sliding_window_counter 100/5s";
const SLOTS: &str = "concurrency 100 lease 1h";
const LIMIT: u64 = 100;
const PERIOD: Duration = Duration::from_secs(5);
/// The refill of a bucket in one period is `LIMIT`, too.
const RATE: u64 = LIMIT / PERIOD.as_secs();
const END: Duration = Duration::from_secs(30);
/// Longer than two periods.
const LONG: Duration = Duration::from_secs(13);
/// Calls on one link. Beyond it they are refused, as by a full queue.
const MAX_IN_FLIGHT: usize = 50;
/// From a link to the store, and back.
const LATENCY: Duration = Duration::from_millis(2);

/// The time of tokio and of the stores: they move together.
#[derive(Clone, Debug)]
struct World {
    clock: Clock,
    began: Instant,
}

impl World {
    fn new() -> World {
        World {
            // Between two edges of a window.
            clock: Clock::manual(Timestamp::from_secs(1_000_002)),
            began: Instant::now(),
        }
    }

    fn elapsed(&self) -> Duration {
        let elapsed = self.began.elapsed();
        self.clock.set(Timestamp::from_secs(1_000_002) + elapsed);
        elapsed
    }

    async fn sleep(&self, span: Duration) {
        sleep(span).await;
        self.elapsed();
    }
}

/// One instance's way to the store.
#[derive(Clone, Debug)]
struct Link {
    store: MemoryStore,
    world: World,
    is_down: Arc<AtomicBool>,
    /// Replies that are lost while the link is up: one in so many; 0 for none.
    lost_replies: u64,
    calls: Arc<AtomicU64>,
    /// Calls in flight, at most `MAX_IN_FLIGHT`.
    permits: Arc<Semaphore>,
    /// Units of later charges whose reply was lost.
    lost_units: Arc<AtomicU64>,
}

impl Link {
    fn new(store: &MemoryStore, world: &World, lost_replies: u64) -> Link {
        Link {
            store: store.clone(),
            world: world.clone(),
            is_down: Arc::default(),
            lost_replies,
            calls: Arc::default(),
            permits: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            lost_units: Arc::default(),
        }
    }

    /// Carries a call there and its answer back.
    fn call<T: Send + Unpin + 'static>(
        &self,
        call: impl FnOnce(&MemoryStore) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        if self.is_down.load(SeqCst) {
            return StoreFuture::ready(Err(StoreError::Unavailable { source: None }));
        }
        let link = self.clone();
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return StoreFuture::ready(Err(StoreError::Overloaded));
        };
        StoreFuture::pending(async move {
            let _permit = permit;
            let is_lost = link.lost_replies > 0
                && Random::new(link.calls.fetch_add(1, SeqCst)).one_in(link.lost_replies);
            link.world.sleep(LATENCY).await;
            if link.is_down.load(SeqCst) {
                return Err(StoreError::TimedOut);
            }
            let answer = call(&link.store).await;
            link.world.sleep(LATENCY).await;
            if is_lost || link.is_down.load(SeqCst) {
                return Err(StoreError::TimedOut);
            }
            answer
        })
    }
}

impl Store for Link {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        let (policy, keys) = (hit.policy.clone(), hit.keys());
        let (cost, mode, slot) = (hit.cost, hit.mode, hit.slot);
        self.call(move |store| {
            let mut hit = Hit::for_keys(&policy, &keys).cost(cost).slot(slot);
            hit.mode = mode;
            store.hit(hit)
        })
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        let receipt = receipt.clone();
        let (link, settling) = (
            self.clone(),
            self.call(move |store| store.settle(&receipt, change)),
        );
        StoreFuture::pending(async move {
            let settled = settling.await;
            if let (Err(StoreError::TimedOut), Adjustment::CatchUp { units, .. }) =
                (&settled, change)
            {
                let units = units.iter().max().copied().unwrap_or(0);
                link.lost_units.fetch_add(units, SeqCst);
            }
            settled
        })
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        self.store.reset(policy, keys)
    }

    fn manual_clock(&self) -> Option<Clock> {
        Some(self.world.clock.clone())
    }
}

/// When the links are down.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// From 7 s on, for this long.
    Once(Duration),
    /// Every other second.
    Flapping,
    /// The links of the instances in turn, for a second each.
    InTurn,
    /// Never, but one reply in ten is lost.
    LostReplies,
    Never,
}

const OUTAGES: [Outage; 5] = [
    Outage::Once(Duration::from_millis(300)),
    Outage::Once(LONG),
    Outage::Flapping,
    Outage::InTurn,
    Outage::LostReplies,
];

impl Outage {
    fn is_down(self, instance: usize, instances: usize, at: Duration) -> bool {
        let second = usize::try_from(at.as_secs()).unwrap();
        match self {
            Outage::Once(span) => {
                (Duration::from_secs(7)..Duration::from_secs(7) + span).contains(&at)
            }
            Outage::Flapping => second % 2 == 1,
            Outage::InTurn => second % (instances + 1) == instance,
            Outage::LostReplies | Outage::Never => false,
        }
    }
}

/// When callers send.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    Steady,
    /// Nothing but bursts of a second: within each outage, and when it has ended.
    Bursts,
}

/// The hits of one instance that passed.
#[derive(Clone, Debug, Default)]
struct Passed {
    /// Their times in microseconds; without those whose call got no reply.
    times: Vec<u64>,
    without_reply: u64,
    /// Units of later charges whose reply was lost.
    lost_units: u64,
}

#[derive(Debug)]
struct Scenario {
    text: &'static str,
    mode: FailureMode,
    instances: usize,
    callers: usize,
    outage: Outage,
    load: Load,
}

impl Scenario {
    /// Runs the callers of all instances on one key.
    async fn run(&self) -> Vec<Passed> {
        let world = World::new();
        let store = MemoryStore::new().clock(world.clock.clone());
        let lost_replies = match self.outage {
            Outage::LostReplies => 10,
            _ => 0,
        };
        let mut instances = Vec::new();
        for index in 0..self.instances {
            let link = Link::new(&store, &world, lost_replies);
            let limiter = Limiter::new(link.clone()).failure_mode(self.mode);
            let callers = (0..self.callers).map(|caller| {
                let seed = (index * self.callers + caller) as u64;
                tokio::spawn(self.caller(seed, limiter.clone(), world.clone()))
            });
            instances.push((link, callers.collect::<Vec<_>>()));
        }
        loop {
            let at = world.elapsed();
            for (index, (link, _)) in instances.iter().enumerate() {
                let is_down = self.outage.is_down(index, self.instances, at);
                link.is_down.store(is_down, SeqCst);
            }
            if at >= END {
                break;
            }
            world.sleep(Duration::from_millis(50)).await;
        }
        let mut all = Vec::new();
        for (link, callers) in instances {
            let mut passed = Passed {
                lost_units: link.lost_units.load(SeqCst),
                ..Passed::default()
            };
            for caller in callers {
                let own = caller.await.unwrap();
                passed.times.extend(own.times);
                passed.without_reply += own.without_reply;
            }
            passed.times.sort_unstable();
            all.push(passed);
        }
        all
    }

    /// Sends about 100 hits a second and instance.
    fn caller(
        &self,
        seed: u64,
        limiter: Limiter,
        world: World,
    ) -> impl Future<Output = Passed> + Send + 'static {
        let (limit, subject) = (policy("outage", self.text), key("k"));
        let (load, pause) = (self.load, 20_000 * self.callers as u64);
        async move {
            let mut random = Random::new(seed);
            let mut passed = Passed::default();
            while world.elapsed() < END {
                let pause = Duration::from_micros(random.range(0, pause));
                world.sleep(pause).await;
                let in_burst = [7, 19, 20, 21].contains(&world.elapsed().as_secs());
                if load == Load::Bursts && !in_burst {
                    continue;
                }
                match limiter.check(&limit, &subject).await {
                    Verdict::Unchecked {
                        reason: ratelimit_core::UncheckedReason::TimedOut,
                        decision: Some(decision),
                        ..
                    } => passed.without_reply += u64::from(decision.is_allowed()),
                    verdict => {
                        let decision = verdict.decision().unwrap();
                        if decision.is_allowed() {
                            passed.times.push(decision.now.as_micros());
                        }
                    }
                }
            }
            passed
        }
    }
}

/// The most units that count at one time under a limit, were it `instances` times as large.
///
/// A bucket: what is in it. A window: the hits of one window of the clock. A log: the hits of one period. A counter: the hits
/// of a window, and those of the one before by the part of it that is within one period.
fn peak(text: &str, times: &[u64], instances: u64) -> u64 {
    let period = u64::try_from(PERIOD.as_micros()).unwrap();
    let in_window = |window: u64| times.iter().filter(|&&at| at / period == window).count() as u64;
    match text.split(' ').next().unwrap() {
        "token_bucket" | "leaky_bucket" => {
            let rate = RATE * instances;
            // In millionths of a unit.
            let (mut level, mut last, mut peak) = (0_u64, 0, 0);
            for &at in times {
                level = level.saturating_sub((at - last) * rate) + 1_000_000;
                (last, peak) = (at, peak.max(level));
            }
            peak.div_ceil(1_000_000)
        }
        "fixed_window" => {
            let windows = times.iter().map(|at| at / period);
            windows.map(in_window).max().unwrap_or(0)
        }
        "sliding_window_log" => {
            let hits = |(index, &at): (usize, &u64)| {
                times[..=index].iter().filter(|&&t| t + period > at).count() as u64
            };
            times.iter().enumerate().map(hits).max().unwrap_or(0)
        }
        "sliding_window_counter" => {
            let weigh = |(index, &at): (usize, &u64)| {
                let window = at / period;
                let present = times[..=index].iter().filter(|&&t| t / period == window);
                let earlier = in_window(window - 1) * (period - at % period) / period;
                present.count() as u64 + earlier
            };
            times.iter().enumerate().map(weigh).max().unwrap_or(0)
        }
        other => panic!("no model of {other}"),
    }
}

/// Runs all outages under a limit, and checks the bounds of each.
async fn check_bounds(text: &'static str) {
    for (instances, callers) in [(1, 1), (1, 16), (4, 1), (4, 16)] {
        let share = FailureMode::LocalShare {
            instances: NonZeroU32::new(instances).unwrap(),
        };
        for mode in [FailureMode::Local, share] {
            let steady = OUTAGES.map(|outage| (outage, Load::Steady));
            let bursts = (Outage::Once(LONG), Load::Bursts);
            for (outage, load) in steady.into_iter().chain([bursts]) {
                let scenario = Scenario {
                    text,
                    mode,
                    instances: instances as usize,
                    callers,
                    outage,
                    load,
                };
                scenario.check().await;
            }
        }
    }
}

impl Scenario {
    async fn check(&self) {
        let (passed, count) = (self.run().await, self.instances as u64);
        let mut all = Passed::default();
        for own in &passed {
            let most = peak(self.text, &own.times, 1);
            let extra = own.without_reply + own.lost_units;
            assert!(
                most <= LIMIT + extra,
                "{self:?}: {most} by one instance, {extra}"
            );
            all.times.extend(&own.times);
            all.without_reply += own.without_reply;
            all.lost_units += own.lost_units;
        }
        all.times.sort_unstable();
        let extra = all.without_reply + all.lost_units;
        let (most, bound) = match self.mode {
            FailureMode::Local => (peak(self.text, &all.times, count), count * LIMIT),
            // What Redis allows, and the shares. Each share is rounded up.
            _ => (peak(self.text, &all.times, 2), 2 * LIMIT + count - 1),
        };
        assert!(most <= bound + extra, "{self:?}: {most} by all, {extra}");
        println!(
            "{self:?}: {} passed, at most {most} at a time, {extra} unknown",
            all.times.len()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_bucket_holds_its_bounds_in_outages() {
    check_bounds(TOKEN_BUCKET).await;
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_holds_its_bounds_in_outages() {
    check_bounds(LEAKY_BUCKET).await;
}

#[tokio::test(start_paused = true)]
async fn a_fixed_window_holds_its_bounds_in_outages() {
    check_bounds(FIXED_WINDOW).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_holds_its_bounds_in_outages() {
    check_bounds(LOG).await;
}

#[tokio::test(start_paused = true)]
async fn a_counter_holds_its_bounds_in_outages() {
    check_bounds(COUNTER).await;
}

/// With one instance an outage changes nothing but the age of what was spent before it.
#[tokio::test(start_paused = true)]
async fn one_instance_allows_hardly_less_in_an_outage() {
    for (text, less) in [
        (TOKEN_BUCKET, 2),
        (LEAKY_BUCKET, 2),
        (FIXED_WINDOW, 0),
        (LOG, LIMIT),
        (COUNTER, LIMIT),
    ] {
        let scenario = |outage| Scenario {
            text,
            mode: FailureMode::Local,
            instances: 1,
            callers: 1,
            outage,
            load: Load::Steady,
        };
        let passed = async |outage| {
            let passed = &scenario(outage).run().await[0];
            passed.times.len() as u64 + passed.without_reply
        };
        let healthy = passed(Outage::Never).await;
        for outage in &OUTAGES[..3] {
            let passed = passed(*outage).await;
            println!("{text}: {passed} in {outage:?}, {healthy} without");
            assert!(
                passed + less >= healthy,
                "{text}, {outage:?}: {passed} of {healthy}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_stays_exhausted_in_an_outage_and_one_in_use_goes_on() {
    for text in [TOKEN_BUCKET, LEAKY_BUCKET, FIXED_WINDOW, LOG, COUNTER] {
        let world = World::new();
        let store = MemoryStore::new().clock(world.clock.clone());
        let link = Link::new(&store, &world, 0);
        let (here, there) = (Limiter::new(link.clone()), Limiter::new(store));
        let limit = policy("outage", text);
        let passed = async |limiter: &Limiter, subject: &str, hits: u64| {
            let mut passed = 0;
            for _ in 0..hits {
                let verdict = limiter.check(&limit, &key(subject)).await;
                passed += u64::from(verdict.is_allowed());
            }
            passed
        };
        // Another instance spends it. Here, a peek is enough to know.
        for (subject, spent) in [("exhausted", LIMIT), ("in use", 60)] {
            assert_eq!(passed(&there, subject, spent).await, spent);
            let seen = here.peek(&limit, &key(subject)).await;
            assert!(matches!(seen, Verdict::Checked(_)));
        }
        link.is_down.store(true, SeqCst);
        assert_eq!(passed(&here, "exhausted", 3 * LIMIT).await, 0, "{text}");
        // A bucket has gained a unit since.
        let left = passed(&here, "in use", 3 * LIMIT).await;
        assert!((40..=41).contains(&left), "{text}: {left}");
    }
}

/// A full queue is no outage: what Redis has not answered yet counts as spent.
#[tokio::test(start_paused = true)]
async fn hits_beyond_a_full_queue_get_no_second_budget() {
    for text in [
        TOKEN_BUCKET,
        LEAKY_BUCKET,
        FIXED_WINDOW,
        LOG,
        COUNTER,
        SLOTS,
    ] {
        let world = World::new();
        let link = Link::new(&MemoryStore::new().clock(world.clock.clone()), &world, 0);
        let (limiter, limit, subject) = (Limiter::new(link), policy("queue", text), key("k"));
        let mut passed = 0;
        for _ in 0..10 {
            let hits = (0..4 * MAX_IN_FLIGHT).map(|_| limiter.reserve(Hit::new(&limit, &subject)));
            for (verdict, reservation) in join_all(hits).await {
                passed += u64::from(verdict.is_allowed());
                // The slots stay taken.
                std::mem::forget(reservation);
            }
        }
        println!("{text}: {passed} of {LIMIT}");
        // A bucket gains a unit in 50 ms.
        assert!(passed <= LIMIT + 1, "{text}: {passed}");
        assert!(passed >= MAX_IN_FLIGHT as u64, "{text}: {passed}");
    }
}

/// A decision reports the plain limit, so the headroom that was spent is not seen in it.
#[tokio::test(start_paused = true)]
async fn the_headroom_of_a_soft_limit_is_not_given_again_in_each_outage() {
    for text in [FIXED_WINDOW, LOG, COUNTER] {
        let world = World::new();
        let link = Link::new(&MemoryStore::new().clock(world.clock.clone()), &world, 0);
        let limit = policy("soft", text).with_throttle(Throttle::Soft { percent: 50 });
        let (limiter, limit) = (Limiter::new(link.clone()), limit.unwrap());
        let mut passed = 0;
        for round in 0..10 {
            link.is_down.store(round % 2 == 1, SeqCst);
            for _ in 0..30 {
                let verdict = limiter.check(&limit, &key("k")).await;
                passed += u64::from(verdict.is_allowed());
            }
        }
        assert!(
            (LIMIT..=LIMIT + LIMIT / 2).contains(&passed),
            "{text}: {passed}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_with_100_000_keys_is_charged_for_as_many_as_the_table_holds() {
    const KEYS: u64 = 100_000;
    const TABLE: u64 = 65_536;
    let world = World::new();
    let link = Link::new(&MemoryStore::new().clock(world.clock.clone()), &world, 0);
    let (limiter, limit) = (
        Limiter::new(link.clone()),
        policy("keys", "fixed_window 1/366d"),
    );
    let passed = async || {
        let mut passed = 0;
        for number in 0..KEYS {
            let verdict = limiter.check(&limit, &key(&number.to_string())).await;
            passed += u64::from(verdict.is_allowed());
        }
        passed
    };
    link.is_down.store(true, SeqCst);
    assert_eq!(passed().await, KEYS);
    assert_eq!(passed().await, 0, "all keys are limited locally");
    link.is_down.store(false, SeqCst);
    assert_eq!(passed().await, KEYS - TABLE);
}
