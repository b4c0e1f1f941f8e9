//! The store beside exact budgets that are told which keys were evicted, and nothing else.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use proptest::prelude::*;

use super::*;
use crate::{
    keys::Keys,
    policy::{Change, Policy, Throttle, spend},
    store::{
        hit::Hit,
        memory::{MemoryStore, lock},
        receipt::Receipt,
    },
    time::Clock,
};

const LIMITS: &[&str] = &[
    "1/s",
    "2/min",
    "5/h burst 3",
    "1/366d",
    "leaky_bucket 3/min",
    "fixed_window 3/min",
    "sliding_window_counter 3/min",
    "sliding_window_log 4/min",
    "sliding_window_log 40/h",
    "sliding_window_log 3/min count-denied",
    "concurrency 2 lease 1min",
    "2/min; 3/h",
    "3/min; 2/min by ip",
    "3/min; penalty_box 2/min for 5min by ip",
    "sliding_window_log 9/h by ip; 3/min; concurrency 2 lease 10s by route",
];

/// As many keys has a hit on the last of them.
const MOST_KEYS: usize = 3;

#[derive(Clone, Debug)]
struct Step {
    pause: u64,
    policy: usize,
    keys: (u8, u8, u8),
    cost: u64,
    is_meant: bool,
    /// What happens to the charge at once, where it is made.
    change: Option<Change>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![
        3 => Just(0_u64),
        3 => 1..2_000_000_u64,
        2 => 1..40_000_000_u64,
        1 => 1..4_000_000_000_u64,
    ];
    let cost = prop_oneof![1 => Just(0_u64), 8 => 1..4_u64, 1 => 4..60_u64];
    let change = prop_oneof![
        8 => Just(None),
        1 => (0..4_u64).prop_map(|units| Some(Change::Refund { units })),
        1 => (0..4_u64).prop_map(|units| Some(Change::Charge { units })),
        1 => Just(Some(Change::Release)),
    ];
    let step = (
        pause,
        0..LIMITS.len(),
        (0..24_u8, 0..12_u8, 0..3_u8),
        cost,
        prop::bool::weighted(0.9),
        change,
    );
    let step = step.prop_map(|(pause, policy, keys, cost, is_meant, change)| Step {
        pause,
        policy,
        keys,
        cost,
        is_meant,
        change,
    });
    prop::collection::vec(step, 1..300)
}

/// Budgets without bounds.
#[derive(Default)]
struct Exact(HashMap<u64, Known>);

struct Known {
    group: Group,
    budget: Budget,
}

impl Known {
    /// When it has budget again, if it is exhausted.
    fn exhausted_until(&self, now: Timestamp) -> Option<Timestamp> {
        let after = self.budget.recovers_after(&self.group, now);
        let recovers_at = (now + after).min(self.budget.expires());
        (recovers_at > now).then_some(recovers_at)
    }
}

impl Exact {
    fn decide(&mut self, hit: &Hit<'_>, keys: &[Whose<'_>], now: Timestamp) -> Decision {
        let asked = hit.asked();
        let mut decision = Decision::blank(now);
        if let [whose] = keys {
            self.write(*whose, |budget| {
                budget.hit(whose.group, asked, &mut decision)
            });
            return decision;
        }
        let fits = keys.iter().map(|whose| match self.0.get(&whose.hash) {
            Some(known) => known.budget.fit(whose.group, now, asked),
            None => Budget::default().fit(whose.group, now, asked),
        });
        let spend = spend(fits.max().unwrap_or(Fit::Now), asked);
        let mut steps = vec![None; hit.policy.limits().len()];
        for whose in keys {
            self.write(*whose, |budget| {
                budget.spend(whose.group, now, asked, spend, |bound, step| {
                    steps[bound.place] = Some(step);
                })
            });
        }
        let steps = steps.into_iter().flatten();
        steps.for_each(|step| decision.gather(step));
        decision.conclude();
        decision
    }

    fn write(&mut self, whose: Whose<'_>, step: impl FnOnce(&mut Budget) -> bool) {
        let known = self.0.remove(&whose.hash);
        let was_known = known.is_some();
        let mut budget = known.map(|known| known.budget).unwrap_or_default();
        if step(&mut budget) || was_known {
            let group = whose.group.clone();
            self.0.insert(whose.hash, Known { group, budget });
        }
    }
}

struct Rig {
    policies: Vec<Policy>,
    store: MemoryStore,
    clock: Clock,
    exact: Exact,
}

impl Rig {
    fn new(shards: usize, capacity: usize, max_bytes: usize) -> Rig {
        let named = |(number, limits): (usize, &&str)| {
            let policy = Policy::parse(&format!("p{number}"), limits).unwrap();
            let soft = policy.throttle(Throttle::Soft { percent: 50 });
            if number == 1 { soft.unwrap() } else { policy }
        };
        let clock = Clock::manual(Timestamp::from_secs(1_000_000));
        Rig {
            policies: LIMITS.iter().enumerate().map(named).collect(),
            store: MemoryStore::sharded(shards, capacity, max_bytes, clock.clone()),
            clock,
            exact: Exact::default(),
        }
    }

    fn run(&mut self, number: u64, step: &Step) -> Result<(), TestCaseError> {
        self.clock.advance(Duration::from_micros(step.pause));
        let now = self.clock.now();
        self.exact.0.retain(|_, known| known.budget.expires() > now);
        let before = self.store.stats();
        let key = |tag, value: u8| Key::tagged(tag, [b'a' + value]).unwrap();
        let (own, ip, route) = step.keys;
        let keys = Keys::new(key("key", own))
            .by("ip", key("ip", ip))
            .by("route", key("route", route));
        let policy = self.policies[step.policy].clone();
        let mut hit = Hit::by(&policy, &keys).cost(step.cost).slot(number);
        if !step.is_meant {
            hit = hit.foresee();
        }
        let shared = self.store.shared.clone();
        let groups = policy.groups().iter();
        let whose: Vec<Whose<'_>> = groups
            .map(|group| shared.whose(group, hit.key_of(group)))
            .collect();

        let decided = self.store.decide(&hit);
        prop_assert_eq!(&decided, &self.exact.decide(&hit, &whose, now));
        self.check_evicted(before, &whose, now)?;

        let receipt = Receipt::of(hit, &decided);
        if let (Some(change), Some(receipt)) = (step.change, receipt) {
            let before = self.store.stats();
            self.store.change(&receipt, change);
            for whose in &whose {
                let settling = receipt.settling(change, now);
                self.exact
                    .write(*whose, |budget| budget.settle(whose.group, settling).wrote);
            }
            self.check_evicted(before, &whose, now)?;
        }
        Ok(())
    }

    /// Forgets what the store evicted, once it is seen that it was right to.
    fn check_evicted(
        &mut self,
        before: MemoryStats,
        own: &[Whose<'_>],
        now: Timestamp,
    ) -> Result<(), TestCaseError> {
        let all = self.store.shared.clone();
        let kept: HashSet<u64> = all
            .shards
            .iter()
            .flat_map(|shard| hashes(&lock(shard)))
            .collect();
        let own: HashSet<u64> = own.iter().map(|whose| whose.hash).collect();
        let (evicted, known): (HashMap<_, _>, HashMap<_, _>) = std::mem::take(&mut self.exact.0)
            .into_iter()
            .partition(|(hash, _)| !kept.contains(hash));
        self.exact.0 = known;

        let mut exhausted = 0;
        for (hash, known) in evicted {
            prop_assert!(!own.contains(&hash), "a key of the hit is gone");
            let Some(recovers_at) = known.exhausted_until(now) else {
                continue;
            };
            exhausted += 1;
            let others = self.exact.0.iter().filter(|(other, _)| {
                all.place_of(**other) == all.place_of(hash) && !own.contains(other)
            });
            for (_, other) in others {
                let other = other.exhausted_until(now);
                prop_assert!(
                    other >= Some(recovers_at),
                    "{other:?} stays, {recovers_at:?} goes"
                );
            }
        }
        let after = self.store.stats();
        prop_assert_eq!(
            exhausted,
            after.evicted_exhausted - before.evicted_exhausted
        );
        for shard in &all.shards {
            let shard = lock(shard);
            prop_assert!(shard.entries.len() <= shard.bounds.keys.max(MOST_KEYS));
            check_indices(&shard)?;
        }
        Ok(())
    }
}

fn hashes(shard: &Shard) -> Vec<u64> {
    shard.entries.iter().map(|entry| entry.hash).collect()
}

/// The table, the parts and the heap point to each other.
fn check_indices(shard: &Shard) -> Result<(), TestCaseError> {
    let pairs: HashSet<_> = shard.recoveries.iter().map(|pair| pair.0).collect();
    for (index, entry) in shard.entries.iter().enumerate() {
        let found = shard
            .table
            .find(entry.hash, |&found| found as usize == index);
        prop_assert!(found.is_some());
        let is_exhausted = entry.recovers_at > Timestamp::default();
        prop_assert_eq!(is_exhausted, index >= shard.exhausted_from);
        prop_assert!(!is_exhausted || pairs.contains(&(entry.recovers_at, entry.hash)));
    }
    prop_assert_eq!(shard.table.len(), shard.entries.len());
    let bytes: usize = shard.entries.iter().map(Entry::bytes).sum();
    prop_assert_eq!(bytes, shard.bytes);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_bounded_store_decides_as_an_exact_one_that_forgets_the_evicted_keys(
        shards in 1..4_usize,
        capacity in 1..40_usize,
        max_bytes in prop_oneof![2 => Just(usize::MAX), 1 => 0..20_000_usize],
        steps in steps(),
    ) {
        let mut rig = Rig::new(shards, capacity, max_bytes);
        for (number, step) in (1_u64..).zip(&steps) {
            rig.run(number, step)?;
        }
    }
}
