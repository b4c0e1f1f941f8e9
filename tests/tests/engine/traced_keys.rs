//! Traces by several keys under policies that gain and lose limits, with refunds and resets: memory,
//! one Redis and a cluster whose nodes keep the keys apart answer alike.

use std::time::Duration;

use ratelimit_core::{
    Decision, Key, KeySet, Policy, Throttle, Timestamp,
    store::{Adjustment, Hit, Receipt, Settlement},
};
use ratelimit_tests::{
    random::Random,
    redis::{Deployment, TestRedis},
};

use crate::stores::TestStore;

const TRACES: u64 = 60;
const STEPS: u64 = 40;
/// So few that traces often come back to one, and so many that they live on different nodes.
const KEYS_PER_NAME: u64 = 3;
const NAMES: [&str; 3] = ["", "ip", "route"];

/// Which limits a trace may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limits {
    /// Those that charge what passes, and nothing else.
    Rates,
    /// Slots as well.
    Slots,
    /// What counts hits that other limits deny as well: logs with `count-denied` and penalty boxes.
    Denials,
}

impl Limits {
    fn texts(self) -> &'static [&'static str] {
        let all: &[&str] = &[
            "token_bucket N/min",
            "token_bucket N/s burst 4",
            "leaky_bucket N/min queue 3 police",
            "fixed_window N/min",
            "fixed_window N/10s",
            "sliding_window_log N/min",
            "sliding_window_counter N/min",
            "concurrency N lease 40s",
            "sliding_window_log N/min count-denied",
            "penalty_box N/min for 30s",
            "penalty_box N/min for 5s growing",
        ];
        match self {
            Limits::Rates => &all[..7],
            Limits::Slots => &all[..8],
            Limits::Denials => all,
        }
    }
}

/// A trace on the same keys in all stores.
struct Trace<'a> {
    random: Random,
    seed: u64,
    now: Timestamp,
    /// The limits of the largest policy, and by which of the names each counts.
    limits: Vec<(usize, String)>,
    kinds: Limits,
    subjects: &'a [TestStore],
    /// What was charged, by each subject.
    receipts: Vec<Vec<Receipt>>,
    log: Vec<String>,
}

/// All that a caller sees of a decision.
fn answer(decision: &Decision) -> String {
    let limits: Vec<String> = decision
        .limits()
        .map(|limit| {
            let (outcome, reset) = (limit.outcome, limit.reset_after);
            format!("{outcome:?} {}/{} {reset:?}", limit.remaining, limit.limit)
        })
        .collect();
    let over = if decision.is_over { ", over" } else { "" };
    format!(
        "{:?} by {}{over}: {limits:?}",
        decision.outcome, decision.binding
    )
}

impl Trace<'_> {
    fn begin(seed: u64, kinds: Limits, subjects: &[TestStore]) -> Trace<'_> {
        let mut trace = Trace {
            random: Random::new(seed),
            seed,
            // Later than all of the trace before, because the stores are the same.
            now: Timestamp::from_secs(1_000_000 * (seed + 1)),
            limits: Vec::new(),
            kinds,
            subjects,
            receipts: Vec::new(),
            log: Vec::new(),
        };
        for _ in 0..trace.random.range(2, 5) {
            let limit = trace.limit();
            trace.limits.push(limit);
        }
        trace
    }

    fn limit(&mut self) -> (usize, String) {
        let text = self.random.one_of(self.kinds.texts());
        let limit = self.random.range(1, 6).to_string();
        (self.random.one_of(&[0, 1, 2]), text.replace('N', &limit))
    }

    /// The policy of a tier: all limits, or some of the first.
    fn policy(&mut self) -> Policy {
        loop {
            let most = self.limits.len() as u64;
            let count = if self.random.one_in(3) {
                self.random.range(1, most)
            } else {
                most
            };
            let count = usize::try_from(count).unwrap();
            let texts: Vec<String> = self.limits[..count]
                .iter()
                .map(|(name, text)| match NAMES[*name] {
                    "" => text.clone(),
                    name => format!("{text} by {name}"),
                })
                .collect();
            let parsed = Policy::parse(&format!("traced{}", self.seed), &texts.join("; "));
            // A penalty box alone is no policy, for example.
            let Ok(policy) = parsed else {
                let limit = self.limit();
                self.limits.push(limit);
                continue;
            };
            let percent = self.random.one_of(&[0, 0, 50]);
            return policy
                .with_throttle(Throttle::Soft { percent })
                .unwrap_or(policy);
        }
    }

    fn keys(&mut self) -> KeySet {
        let seed = self.seed;
        let mut key = |tag: &str| {
            let number = self.random.range(1, KEYS_PER_NAME);
            Key::tagged(tag, format!("{seed}-{number}")).unwrap()
        };
        let own = key("user");
        KeySet::new(own)
            .with("ip", key("ip"))
            .with("route", key("route"))
    }

    fn place(&self, subject: &TestStore) -> String {
        let last: Vec<&String> = self.log.iter().rev().take(12).rev().collect();
        format!(
            "{} in the trace of seed {}: {last:#?}",
            subject.name, self.seed
        )
    }

    async fn step(&mut self) -> bool {
        let pause = self
            .random
            .one_of(&[0, 0, 1, 400_000, 3_000_000, 21_000_000, 61_000_000]);
        self.now = self.now + Duration::from_micros(pause);
        for subject in self.subjects {
            subject.clock.set(self.now);
        }
        match self.random.range(1, 10) {
            1 | 2 if !self.receipts.is_empty() => self.settle().await,
            3 if self.random.one_in(2) => self.reset().await,
            _ => return self.hit().await,
        }
        false
    }

    /// Makes the same hit on all stores, and tells whether it was denied.
    async fn hit(&mut self) -> bool {
        let (policy, keys) = (self.policy(), self.keys());
        let cost = self.random.one_of(&[0, 1, 1, 1, 2, 3]);
        // Each hit has a slot of its own, as the limiter gives it.
        let slot = self.log.len() as u64 + 1;
        let hit = Hit::for_keys(&policy, &keys).cost(cost).slot(slot);
        self.log.push(format!(
            "{cost} at {:?} as {slot} by {keys:?}: {policy}",
            self.now
        ));
        let mut decisions = Vec::new();
        for subject in self.subjects {
            decisions.push(subject.store.hit(hit).await.unwrap());
        }
        for (subject, decision) in self.subjects.iter().zip(&decisions) {
            let expected = answer(&decisions[0]);
            assert_eq!(answer(decision), expected, "{}", self.place(subject));
        }
        let receipts: Vec<Receipt> = decisions
            .iter()
            .filter_map(|decision| Receipt::new(hit, decision))
            .collect();
        if receipts.len() == self.subjects.len() {
            self.receipts.push(receipts);
        }
        !decisions[0].is_allowed()
    }

    async fn settle(&mut self) {
        let last = self.receipts.len() as u64 - 1;
        let place = usize::try_from(self.random.range(0, last)).unwrap();
        let units = self.random.range(1, 3);
        let change = self.random.one_of(&[
            Adjustment::Refund { units },
            Adjustment::Refund { units },
            Adjustment::Charge { units },
            Adjustment::Release,
            Adjustment::Renew,
        ]);
        let receipts = if self.random.one_in(2) {
            self.receipts.swap_remove(place)
        } else {
            self.receipts[place].clone()
        };
        self.log.push(format!(
            "{change:?} at {:?} of {} charged at {:?} by {:?}",
            self.now,
            receipts[0].cost(),
            receipts[0].charged_at(),
            receipts[0].keys(),
        ));
        let mut first: Option<Settlement> = None;
        for (subject, receipt) in self.subjects.iter().zip(&receipts) {
            let settled = subject.store.settle(receipt, change).await.unwrap();
            let expected = *first.get_or_insert(settled);
            // What a cluster has charged and given back at a denial keeps a value alive for longer, so
            // that it can still be changed when others have forgotten it. The look sees the rest.
            let is_alike = match subject.name {
                "cluster" => {
                    (settled == Settlement::LeaseLost) == (expected == Settlement::LeaseLost)
                }
                _ => settled == expected,
            };
            let place = self.place(subject);
            assert!(is_alike, "{settled:?} and not {expected:?} on {place}");
        }
        let policy = receipts[0].policy();
        self.look(policy, receipts[0].keys()).await;
    }

    async fn reset(&mut self) {
        let (policy, keys) = (self.policy(), self.keys());
        self.log
            .push(format!("reset at {:?} of {keys:?}: {policy}", self.now));
        for subject in self.subjects {
            subject.store.reset(&policy, &keys).await.unwrap();
        }
        // A charge at the very moment of a reset is taken for an earlier one.
        self.now = self.now + Duration::from_micros(1);
        self.look(&policy, &keys).await;
    }

    async fn look(&self, policy: &Policy, keys: &KeySet) {
        let mut first: Option<String> = None;
        for subject in self.subjects {
            let look = subject.store.hit(Hit::for_keys(policy, keys).cost(0)).await;
            let answer = answer(&look.unwrap());
            let expected = first.get_or_insert_with(|| answer.clone());
            assert_eq!(answer, *expected, "a look at {}", self.place(subject));
        }
    }
}

async fn compare(kinds: Limits) {
    let one = TestRedis::start().await;
    let cluster = TestRedis::deployed(Deployment::Cluster).await;
    let apart = TestStore {
        name: "cluster",
        ..TestStore::redis(&cluster).await
    };
    let subjects = [TestStore::memory(), TestStore::redis(&one).await, apart];
    let mut denied = 0;
    for seed in 0..TRACES {
        let mut trace = Trace::begin(seed, kinds, &subjects);
        for _ in 0..STEPS {
            denied += u64::from(trace.step().await);
        }
    }
    one.assert_every_key_expires();
    cluster.assert_every_key_expires();
    println!("{kinds:?}: {denied} of {} steps denied", TRACES * STEPS);
    assert!(
        denied > TRACES * STEPS / 20,
        "a trace that denies nothing proves little"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_of_rates_by_several_keys_are_the_same_everywhere() {
    compare(Limits::Rates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_with_slots_by_several_keys_are_the_same_everywhere() {
    compare(Limits::Slots).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_with_counted_denials_by_several_keys_are_the_same_everywhere() {
    compare(Limits::Denials).await;
}
