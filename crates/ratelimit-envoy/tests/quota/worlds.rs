//! Worlds of several Envoys, a server and a store, with faults.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use ratelimit_core::{Clock, Key, Limiter, Policy, Timestamp};
use ratelimit_envoy::{
    RulesBuilder,
    proto::envoy::service::rate_limit_quota::v3::{BucketId, bucket_id::BucketEntry},
    quota::{Assignment, Holders, PassState, QuotaAction, QuotaHolder, QuotaTarget},
    read_rules,
};
use ratelimit_http::policy_file::{Diagnostics, Format, parse};

use crate::{
    envoy_model::{EnvoyModel, Passed, REPORT_MICROS},
    flaky_store::FlakyStore,
    random::Random,
};

/// The budget of the only bucket under these limits.
fn target(limits: &str) -> QuotaTarget {
    let text = format!("bucket: [{{ domain: edge, match: [user], limits: '{limits}' }}]");
    let mut diagnostics = Diagnostics::new();
    let node = parse(&text, Format::Yaml, &mut diagnostics).unwrap();
    let config = read_rules(&node, &mut diagnostics);
    let mut builder = RulesBuilder::new();
    let findings = builder.add_buckets(&config.buckets, config.unmatched, |_| None);
    assert_eq!((diagnostics.sorted(), findings), (vec![], vec![]));
    let entry = BucketEntry {
        key: "user".into(),
        value: "alice".into(),
    };
    let id = BucketId {
        bucket: vec![entry],
    };
    builder.build().quota_target("edge", &id).unwrap()
}

/// The faults of a world. Each happens about once in so many seconds; 0 is never.
#[derive(Clone, Copy, Default)]
struct Faults {
    lost_stream: u64,
    envoy_restart: u64,
    server_restart: u64,
    store_outage: u64,
    /// The longest time of a message on the network, in milliseconds.
    delay: u64,
    /// The longest time from the start of a pass to the turn of the bucket, in milliseconds.
    pass: u64,
    /// The longest time that a stream is busy with other buckets while reports arrive, in milliseconds.
    report_wait: u64,
    /// The longest time from an assignment to the end of its pass, in milliseconds.
    send_wait: u64,
    /// The longest time of a way to the store, in milliseconds.
    slow_store: u64,
}

const CALM: Faults = Faults {
    lost_stream: 0,
    envoy_restart: 0,
    server_restart: 0,
    store_outage: 0,
    delay: 20,
    pass: 0,
    report_wait: 0,
    send_wait: 0,
    slow_store: 2,
};

const WILD: Faults = Faults {
    lost_stream: 25,
    envoy_restart: 60,
    server_restart: 60,
    store_outage: 40,
    delay: 490,
    pass: 200,
    report_wait: 200,
    send_wait: 490,
    slow_store: 40,
};

/// A server with many buckets, whose passes take long.
const BUSY: Faults = Faults {
    pass: 6_000,
    report_wait: 6_000,
    ..WILD
};

enum Message {
    Report(u64, u64),
    Assign(Assignment),
    Abandon,
}

/// A stream: messages under way in both directions, and the server's side of it.
struct Stream {
    up: VecDeque<(Timestamp, Message)>,
    down: VecDeque<(Timestamp, Message)>,
    holder: Option<QuotaHolder>,
    /// The actions of the pass that is under way.
    due: Option<Vec<QuotaAction>>,
    /// The turn of the bucket in a pass, or the end of passes over other buckets.
    busy_until: Timestamp,
}

struct Node {
    envoy: EnvoyModel,
    stream: Option<Stream>,
    /// Requests per second at this time.
    rate: u64,
}

impl Node {
    /// The units that its stream holds.
    fn left(&self) -> Option<u64> {
        Some(self.stream.as_ref()?.holder.as_ref()?.left())
    }
}

struct World {
    random: Random,
    faults: Faults,
    clock: Clock,
    /// The clock of the server is ahead of that of the store.
    skew: Duration,
    store: FlakyStore,
    limiter: Limiter,
    target: QuotaTarget,
    /// Those of each server: Envoys take turns.
    holders: Vec<Arc<Holders>>,
    nodes: Vec<Node>,
    server_back_at: Timestamp,
    store_back_at: Timestamp,
    passed: Vec<Timestamp>,
    unassigned: Vec<Timestamp>,
    allows_without_assignment: bool,
}

const STEP: Duration = Duration::from_millis(50);

impl World {
    fn new(seed: u64, limits: &str, envoys: usize, faults: Faults, allows: bool) -> World {
        let mut random = Random(seed);
        let start = Timestamp::from_micros(1_000_000_000_000 + random.below(60_000_000));
        let clock = Clock::manual(start);
        let store = FlakyStore::new(&clock, seed);
        store.set_slowness(faults.slow_store);
        let mut world = World {
            faults,
            skew: Duration::from_millis(random.below(10_000_000)),
            limiter: Limiter::new(store.clone()),
            target: target(limits),
            holders: vec![Arc::default()],
            nodes: Vec::new(),
            server_back_at: start,
            store_back_at: start,
            passed: Vec::new(),
            unassigned: Vec::new(),
            allows_without_assignment: allows,
            random,
            clock,
            store,
        };
        for _ in 0..envoys {
            let envoy = world.new_envoy();
            world.nodes.push(Node {
                envoy,
                stream: None,
                rate: 0,
            });
        }
        world
    }

    fn new_envoy(&mut self) -> EnvoyModel {
        let tick = self.random.below(REPORT_MICROS);
        let first = Timestamp::from_micros(self.clock.now().as_micros() + tick);
        EnvoyModel::new(self.allows_without_assignment, first)
    }

    fn server_time(&self) -> Timestamp {
        self.clock.now() + self.skew
    }

    /// A time below so many milliseconds; every fourth is below a tenth of them.
    fn span(&mut self, ms: u64) -> Duration {
        let ms = if self.random.once_in(4) { ms / 10 } else { ms };
        Duration::from_millis(self.random.below(ms.max(1)))
    }

    /// Whether a fault that happens once in so many seconds happens in this step.
    fn happens(&mut self, seconds: u64) -> bool {
        seconds > 0 && self.random.once_in(seconds * 20)
    }

    async fn run(&mut self, seconds: u64, rate: impl Fn(usize, u64) -> u64) {
        let start = self.clock.now();
        while self.clock.now().since(start) < Duration::from_secs(seconds) {
            let second = self.clock.now().since(start).as_secs();
            for index in 0..self.nodes.len() {
                self.nodes[index].rate = rate(index, second);
                self.step_node(index).await;
            }
            self.step_faults();
            self.clock.advance(STEP);
        }
    }

    fn step_faults(&mut self) {
        let now = self.clock.now();
        if self.happens(self.faults.store_outage) {
            self.store_back_at = now + Duration::from_millis(self.random.below(8_000));
        }
        self.store.set_away(now < self.store_back_at);
        if self.happens(self.faults.server_restart) {
            self.server_back_at = now + Duration::from_millis(self.random.below(6_000));
            for node in &mut self.nodes {
                node.stream = None;
            }
        }
        for index in 0..self.nodes.len() {
            if self.happens(self.faults.lost_stream) {
                self.nodes[index].stream = None;
            }
            if self.happens(self.faults.envoy_restart) {
                self.nodes[index].envoy = self.new_envoy();
                self.nodes[index].stream = None;
            }
        }
    }

    async fn step_node(&mut self, index: usize) {
        self.send_requests(index);
        self.send_reports(index);
        self.serve(index).await;
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        let Some(stream) = &mut node.stream else {
            return;
        };
        while stream.down.front().is_some_and(|(at, _)| *at <= now) {
            match stream.down.pop_front() {
                Some((_, Message::Assign(assignment))) => node.envoy.assign(assignment, now),
                Some((_, Message::Abandon)) => node.envoy.is_known = false,
                _ => {}
            }
        }
    }

    fn send_requests(&mut self, index: usize) {
        // The rate is that of 20 steps; a burst now and then is as much as two seconds.
        let rate = self.nodes[index].rate;
        let burst = if self.random.once_in(100) {
            rate * 2
        } else {
            0
        };
        let requests = rate / 20 + u64::from(self.random.below(20) < rate % 20) + burst;
        for _ in 0..requests {
            let now = self.clock.now();
            let is_first = !std::mem::replace(&mut self.nodes[index].envoy.is_known, true);
            match self.nodes[index].envoy.request(now) {
                Passed::No => {}
                Passed::ByGrant => self.passed.push(now),
                Passed::WithoutAssignment => {
                    self.passed.push(now);
                    self.unassigned.push(now);
                }
            }
            if is_first {
                self.open_stream(index);
                self.send_report(index);
            }
        }
    }

    fn send_reports(&mut self, index: usize) {
        let now = self.clock.now();
        if now < self.nodes[index].envoy.next_report {
            return;
        }
        let next = self.nodes[index].envoy.next_report.as_micros() + REPORT_MICROS;
        self.nodes[index].envoy.next_report = Timestamp::from_micros(next);
        if !self.nodes[index].envoy.is_known {
            return;
        }
        if self.nodes[index].stream.is_none() {
            // The counts of the time without a stream are lost.
            self.nodes[index].envoy.take_counts();
            self.open_stream(index);
        }
        self.send_report(index);
    }

    fn open_stream(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.stream.is_none() && self.clock.now() >= self.server_back_at {
            node.stream = Some(Stream {
                up: VecDeque::new(),
                down: VecDeque::new(),
                holder: None,
                due: None,
                busy_until: self.clock.now(),
            });
        }
    }

    fn send_report(&mut self, index: usize) {
        let arrival = self.clock.now() + self.span(self.faults.delay);
        let node = &mut self.nodes[index];
        if let Some(stream) = &mut node.stream {
            let (allowed, denied) = node.envoy.take_counts();
            send(&mut stream.up, arrival, Message::Report(allowed, denied));
        }
    }

    /// The server's side: each pass takes all reports that have arrived, and what is due.
    async fn serve(&mut self, index: usize) {
        let Some(mut stream) = self.nodes[index].stream.take() else {
            return;
        };
        if self.clock.now() >= stream.busy_until {
            if let Some(due) = stream.due.take() {
                self.perform(&mut stream, due).await;
                stream.busy_until = self.clock.now() + self.span(self.faults.report_wait);
            } else {
                self.start_pass(index, &mut stream);
            }
        }
        self.nodes[index].stream = Some(stream);
    }

    /// Begins a pass. The turn of the bucket comes later.
    fn start_pass(&mut self, index: usize, stream: &mut Stream) {
        let now = self.clock.now();
        let mut merged: Option<(Timestamp, u64, u64)> = None;
        while let Some((at, Message::Report(allowed, denied))) = stream.up.front()
            && *at <= now
        {
            let (oldest, sum_allowed, sum_denied) = merged.unwrap_or((*at, 0, 0));
            merged = Some((oldest, sum_allowed + allowed, sum_denied + denied));
            stream.up.pop_front();
        }
        let time = self.server_time();
        let due = if let Some((arrival, allowed, denied)) = merged {
            let arrival = arrival + self.skew;
            let holder = stream.holder.get_or_insert_with(|| {
                let holders = &self.holders[index % self.holders.len()];
                QuotaHolder::new(self.target.clone(), Arc::clone(holders), arrival)
            });
            holder.bucket_mut().report(arrival, allowed, denied)
        } else if let Some(holder) = &mut stream.holder {
            holder.bucket_mut().wake(time).into_iter().collect()
        } else {
            Vec::new()
        };
        if !due.is_empty() {
            stream.due = Some(due);
            stream.busy_until = now + self.span(self.faults.pass);
        }
    }

    async fn perform(&mut self, stream: &mut Stream, actions: Vec<QuotaAction>) {
        let (clock, skew) = (self.clock.clone(), self.skew);
        let holder = stream.holder.as_mut().unwrap();
        let pass = PassState::default();
        let update = holder
            .perform(actions, &self.limiter, &pass, || clock.now() + skew)
            .await;
        let sent_at = self.clock.now() + self.span(self.faults.send_wait);
        let arrival = sent_at + self.span(self.faults.delay);
        if let Some(assignment) = update.assignment {
            send(&mut stream.down, arrival, Message::Assign(assignment));
        }
        if update.is_abandoned {
            stream.holder = None;
            send(&mut stream.down, arrival, Message::Abandon);
        }
    }

    /// How much of a budget of 100,000 is charged.
    async fn spent(&self) -> u64 {
        let policy = Policy::parse(self.target.policy_name(), "fixed_window 100000/d").unwrap();
        let key = Key::new("alice").unwrap();
        let left = self.limiter.peek(&policy, &key).await;
        100_000 - left.decision().unwrap().remaining
    }
}

/// How many requests passed in each window.
fn windows(passed: &[Timestamp], seconds: u64) -> Vec<u64> {
    let window = |time: &Timestamp| time.as_micros() / (seconds * 1_000_000);
    let (Some(first), Some(last)) = (passed.first(), passed.last()) else {
        return Vec::new();
    };
    let mut counts = vec![0; usize::try_from(window(last) - window(first) + 1).unwrap()];
    for time in passed {
        counts[usize::try_from(window(time) - window(first)).unwrap()] += 1;
    }
    counts
}

/// Messages of one direction keep their order.
fn send(queue: &mut VecDeque<(Timestamp, Message)>, arrival: Timestamp, message: Message) {
    let last = queue.back().map_or(arrival, |(at, _)| *at);
    queue.push_back((arrival.max(last), message));
}

/// A load that changes every few seconds, different for each Envoy.
fn uneven(seed: u64) -> impl Fn(usize, u64) -> u64 {
    move |index, second| {
        let mut random = Random(seed ^ (index as u64) << 32 ^ (second / 7));
        match random.below(4) {
            0 => 0,
            1 => random.below(3),
            2 => random.below(10),
            _ => random.below(40),
        }
    }
}

#[tokio::test]
async fn no_window_is_exceeded_in_any_world() {
    for seed in 0..400 {
        let (limits, limit, seconds) = match seed % 4 {
            0 => ("fixed_window 60/20s", 60, 20),
            1 => ("fixed_window 400/min", 400, 60),
            2 => ("fixed_window 30/10s", 30, 10),
            _ => ("fixed_window 60/20s; fixed_window 100/min", 60, 20),
        };
        let envoys = [1, 2, 3, 4, 5][usize::try_from(seed % 5).unwrap()];
        let faults = if seed % 3 == 0 { BUSY } else { WILD };
        let mut world = World::new(seed, limits, envoys, faults, false);
        if seed % 7 < 2 {
            world.holders.push(Arc::default());
        }
        world.run(120, uneven(seed)).await;

        let counts = windows(&world.passed, seconds);
        assert!(
            counts.iter().all(|count| *count <= limit),
            "seed {seed}: {counts:?}"
        );
        assert!(
            counts.iter().sum::<u64>() > 0,
            "seed {seed}: nothing passed"
        );
        if seed % 4 == 3 {
            let minutes = windows(&world.passed, 60);
            assert!(
                minutes.iter().all(|count| *count <= 100),
                "seed {seed}: {minutes:?}"
            );
        }
    }
}

#[tokio::test]
async fn no_counter_is_exceeded_in_any_world() {
    const PERIOD: u64 = 20_000_000;
    for seed in 0..100 {
        let faults = if seed % 3 == 0 { BUSY } else { WILD };
        let mut world = World::new(seed, "sliding_window_counter 60/20s", 3, faults, false);
        world.run(120, uneven(seed)).await;

        let passed = &world.passed;
        for (index, time) in passed.iter().enumerate() {
            let window = time.as_micros() / PERIOD;
            let of = |wanted: u64| {
                let until = passed[..=index].iter();
                until
                    .filter(move |at| at.as_micros() / PERIOD == wanted)
                    .count() as u64
            };
            // The estimate at the end of the window is the smallest that any of its grants was charged under.
            let weight = PERIOD - time.as_micros() % PERIOD;
            let estimate = of(window) + of(window - 1) * weight / PERIOD;
            assert!(estimate <= 61, "seed {seed}: {estimate} at {time:?}");
        }
    }
}

/// A unit may be used later than it was charged, by at most this time: the documented bound.
const MAX_LAG_SECONDS: u64 = 24;

#[tokio::test]
async fn a_bucket_is_exceeded_by_no_more_than_the_documented_lag() {
    for (limits, capacity, rate) in [("4/s burst 100", 100, 4), ("100/min", 100, 2)] {
        for seed in 0..100 {
            let faults = if seed % 3 == 0 { BUSY } else { WILD };
            let mut world = World::new(seed, limits, 3, faults, false);
            world.run(180, uneven(seed)).await;

            // A bucket with the lag on top, in thousandths: it is never empty.
            let full = (capacity + rate * MAX_LAG_SECONDS) * 1_000;
            let (mut level, mut last) = (full, world.passed[0]);
            for time in &world.passed {
                let refill = u64::try_from(time.since(last).as_millis()).unwrap() * rate;
                level = (level + refill).min(full);
                assert!(level >= 1_000, "seed {seed}: {limits}");
                level -= 1_000;
                last = *time;
            }
        }
    }
}

#[tokio::test]
async fn requests_without_an_assignment_are_charged_to_the_window_of_their_report() {
    const PERIOD: u64 = 20_000_000;
    let mut most = 0;
    for seed in 0..100 {
        let faults = Faults { delay: 490, ..CALM };
        let mut world = World::new(seed, "fixed_window 60/20s", 1, faults, true);
        world.run(60, |_, _| 30).await;

        // They come at the beginning, and are reported within 6 seconds.
        let first = world.unassigned[0].as_micros();
        let last = world.unassigned.last().unwrap().as_micros();
        let unassigned = world.unassigned.len() as u64;
        let is_same_window = (last + 6_000_000) / PERIOD == first / PERIOD;
        // Until then a quarter of the budget is granted. A report that comes with that grant counts as spent from it, so
        // that up to a quarter is recorded with a later one.
        if is_same_window && unassigned <= 45 {
            most = most.max(unassigned);
            let counts = windows(&world.passed, 20);
            assert!(
                counts[0] <= 60 + 15.min(unassigned)
                    && counts[1..].iter().all(|count| *count <= 60),
                "seed {seed}: {unassigned}, {counts:?}"
            );
        }
    }
    assert!(most > 20, "{most}");
}

#[tokio::test]
async fn every_reported_request_is_charged() {
    for seed in 0..40 {
        // A call that timed out may have charged a grant that was never sent, so every other world has no outage.
        let faults = Faults {
            store_outage: if seed % 2 == 0 { 0 } else { 30 },
            pass: 300,
            ..CALM
        };
        let mut world = World::new(seed, "fixed_window 100000/d", 3, faults, true);
        world.run(100, |_, _| 4).await;
        // An outage ends within 8 seconds. Two reports later nothing is under way.
        world.faults.store_outage = 0;
        world.run(20, |_, _| 0).await;

        assert!(!world.unassigned.is_empty(), "seed {seed}");
        let held: u64 = world.nodes.iter().filter_map(Node::left).sum();
        let expected = world.passed.len() as u64 + held;
        let spent = world.spent().await;
        assert!(
            spent >= expected,
            "seed {seed}: {expected} expected, {spent} charged"
        );
        if seed % 2 == 0 {
            assert_eq!(spent, expected, "seed {seed}");
        }
    }
}

#[tokio::test]
async fn calm_worlds_use_what_the_limit_allows() {
    for (envoys, limits, limit, seconds) in [
        (1, "fixed_window 60/20s", 60, 20),
        (2, "fixed_window 60/20s", 60, 20),
        (5, "fixed_window 1200/min", 1_200, 60),
        (2, "sliding_window_counter 600/min", 600, 60),
        (4, "20/s burst 200", 1_200, 60),
    ] {
        for seed in 0..5 {
            let mut world = World::new(seed, limits, envoys, CALM, false);
            world.run(300, |_, _| 20).await;

            let counts = windows(&world.passed, seconds);
            let inner = &counts[1..counts.len() - 1];
            let used = inner.iter().sum::<u64>() * 100 / (limit * inner.len() as u64);
            println!("{envoys} x {limits}: {used} % {counts:?}");
            let needed = if limits.starts_with("sliding") {
                75
            } else {
                85
            };
            assert!(
                used >= needed,
                "seed {seed}: {envoys} x {limits}: {counts:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_busy_envoy_gets_what_an_idle_one_does_not_need() {
    for seed in 0..20 {
        let mut world = World::new(seed, "fixed_window 60/20s", 2, CALM, false);
        world
            .run(
                160,
                |index, second| if index == 0 || second < 20 { 10 } else { 0 },
            )
            .await;

        let counts = windows(&world.passed, 20);
        let late = &counts[3..counts.len() - 1];
        assert!(
            late.iter().all(|count| *count >= 48),
            "seed {seed}: {counts:?}"
        );
    }
}

#[tokio::test]
async fn an_idle_bucket_is_abandoned_and_begins_anew() {
    let mut world = World::new(1, "fixed_window 60/20s", 1, CALM, false);
    world
        .run(
            150,
            |_, second| if (5..=140).contains(&second) { 0 } else { 5 },
        )
        .await;

    assert!(world.passed.len() > 20, "{:?}", world.passed.len());
    assert!(world.nodes[0].envoy.is_known);
    world.nodes[0].rate = 0;
    world.run(70, |_, _| 0).await;
    assert!(!world.nodes[0].envoy.is_known, "the bucket was abandoned");
}
