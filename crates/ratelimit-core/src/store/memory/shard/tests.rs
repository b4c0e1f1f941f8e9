//! The store beside exact budgets that are told which keys were evicted, and nothing else.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use proptest::prelude::*;

use super::*;
use crate::{
    algorithm::Fit,
    budget::{Adjustment, ChargedLimits, effect_of},
    key::Key,
    key_set::KeySet,
    policy::{LimitGroup, Policy, Throttle},
    store::{contract::Store as _, hit::Hit, memory::MemoryStore, receipt::Receipt},
    sync::lock,
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
    "9/min",
    "9/min; 2/h",
    "9/min; 2/h; sliding_window_log 4/d",
];

/// The number of last limits that are tiers of one policy and share their keys.
const TIERS: usize = 3;

/// As many keys has a hit on the last of them.
const MOST_KEYS: usize = 3;

#[derive(Clone, Debug)]
struct TraceStep {
    pause: u64,
    policy: usize,
    keys: (u8, u8, u8),
    cost: u64,
    is_meant: bool,
    /// Whether the keys are reset before.
    is_reset: bool,
    /// What happens to the charge at once, where it is made.
    change: Option<Adjustment>,
}

fn steps() -> impl Strategy<Value = Vec<TraceStep>> {
    let pause = prop_oneof![
        3 => Just(0_u64),
        3 => 1..2_000_000_u64,
        2 => 1..40_000_000_u64,
        1 => 1..4_000_000_000_u64,
    ];
    let cost = prop_oneof![1 => Just(0_u64), 8 => 1..4_u64, 1 => 4..60_u64];
    let change = prop_oneof![
        8 => Just(None),
        1 => (0..4_u64).prop_map(|units| Some(Adjustment::Refund { units })),
        1 => (0..4_u64).prop_map(|units| Some(Adjustment::Charge { units })),
        1 => Just(Some(Adjustment::Release)),
    ];
    let step = (
        pause,
        prop_oneof![3 => 0..LIMITS.len(), 1 => LIMITS.len() - TIERS..LIMITS.len()],
        (0..24_u8, 0..12_u8, 0..3_u8),
        cost,
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.05),
        change,
    );
    let step = step.prop_map(
        |(pause, policy, keys, cost, is_meant, is_reset, change)| TraceStep {
            pause,
            policy,
            keys,
            cost,
            is_meant,
            is_reset,
            change,
        },
    );
    prop::collection::vec(step, 1..300)
}

/// Budgets without bounds.
#[derive(Default)]
struct Exact(HashMap<u64, Known>);

struct Known {
    /// That of the last write.
    group: LimitGroup,
    budget: Budget,
}

impl Known {
    /// When it has budget again, if it is exhausted.
    fn exhausted_until(&self, now: Timestamp) -> Option<Timestamp> {
        let after = self.budget.time_to_recover(&self.group, now);
        let recovers_at = (now + after).min(self.budget.expires());
        (recovers_at > now).then_some(recovers_at)
    }
}

impl Exact {
    fn decide(&mut self, hit: &Hit<'_>, keys: &[EntryId<'_>], now: Timestamp) -> Charged {
        let params = hit.params();
        let fits = keys.iter().map(|id| match self.0.get(&id.hash) {
            Some(known) => known.budget.fit(id.group, now, params),
            None => Budget::default().fit(id.group, now, params),
        });
        let effect = effect_of(fits.max().unwrap_or(Fit::Now), params);
        let mut limits = ChargedLimits::new();
        for id in keys {
            self.write(*id, |budget| {
                budget.apply(id.group, now, params, |_| effect, &mut limits)
            });
        }
        Charged::from_limits(now, &mut limits)
    }

    fn write(&mut self, id: EntryId<'_>, step: impl FnOnce(&mut Budget) -> bool) {
        let (group, mut budget) = match self.0.remove(&id.hash) {
            Some(known) => (Some(known.group), known.budget),
            None => (None, Budget::default()),
        };
        let written = step(&mut budget).then(|| id.group.clone());
        if let Some(group) = written.or(group) {
            self.0.insert(id.hash, Known { group, budget });
        }
    }

    fn reset(&mut self, id: EntryId<'_>, now: Timestamp) {
        if self.0.contains_key(&id.hash) {
            self.write(id, |budget| {
                budget.reset(now);
                true
            });
        }
    }
}

struct BoundedAndExact {
    policies: Vec<Policy>,
    store: MemoryStore,
    clock: Clock,
    exact: Exact,
}

impl BoundedAndExact {
    fn new(shards: usize, capacity: usize, max_bytes: usize) -> BoundedAndExact {
        let named = |(number, limits): (usize, &&str)| {
            let name = number.min(LIMITS.len() - TIERS);
            let policy = Policy::parse(&format!("p{name}"), limits).unwrap();
            let soft = policy.with_throttle(Throttle::Soft { percent: 50 });
            if number == 1 { soft.unwrap() } else { policy }
        };
        let clock = Clock::manual(Timestamp::from_secs(1_000_000));
        BoundedAndExact {
            policies: LIMITS.iter().enumerate().map(named).collect(),
            store: MemoryStore::sharded(shards, capacity, max_bytes, clock.clone()),
            clock,
            exact: Exact::default(),
        }
    }

    fn run(&mut self, number: u64, step: &TraceStep) -> Result<(), TestCaseError> {
        self.clock.advance(Duration::from_micros(step.pause));
        let now = self.clock.now();
        self.exact.0.retain(|_, known| known.budget.expires() > now);
        let before = self.store.stats();
        let key = |tag, value: u8| Key::tagged(tag, [b'a' + value]).unwrap();
        let (own, ip, route) = step.keys;
        let keys = KeySet::new(key("key", own))
            .with("ip", key("ip", ip))
            .with("route", key("route", route));
        let policy = self.policies[step.policy].clone();
        let mut hit = Hit::for_keys(&policy, &keys).cost(step.cost).slot(number);
        if !step.is_meant {
            hit = hit.dry_run();
        }
        let shared = self.store.shared.clone();
        let groups = policy.groups().iter();
        let id: Vec<EntryId<'_>> = groups
            .map(|group| shared.entry_id(group, hit.key_for(group)))
            .collect();

        if step.is_reset {
            drop(self.store.reset(&policy, &keys));
            for id in &id {
                self.exact.reset(*id, now);
            }
            self.check_evicted(before, &id, now)?;
        }
        let before = self.store.stats();
        let decided = self.store.check(&hit);
        let exact = self.exact.decide(&hit, &id, now);
        prop_assert_eq!(&decided.decision, &exact.decision);
        prop_assert_eq!(&decided.marks, &exact.marks);
        self.check_evicted(before, &id, now)?;

        let receipt = Receipt::new(hit, &decided);
        if let (Some(change), Some(receipt)) = (step.change, receipt) {
            let before = self.store.stats();
            self.store.adjust(&receipt, change);
            for id in &id {
                let settling = receipt.request(change, now);
                self.exact
                    .write(*id, |budget| budget.settle(id.group, settling).stored);
            }
            self.check_evicted(before, &id, now)?;
        }
        Ok(())
    }

    /// Forgets what the store evicted, once it is seen that it was right to.
    fn check_evicted(
        &mut self,
        before: MemoryStats,
        own: &[EntryId<'_>],
        now: Timestamp,
    ) -> Result<(), TestCaseError> {
        let all = self.store.shared.clone();
        let kept: HashSet<u64> = all
            .shards
            .iter()
            .flat_map(|shard| hashes(&lock(shard)))
            .collect();
        let own: HashSet<u64> = own.iter().map(|id| id.hash).collect();
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
                all.shard_index(**other) == all.shard_index(hash) && !own.contains(other)
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
        let mut rig = BoundedAndExact::new(shards, capacity, max_bytes);
        for (number, step) in (1_u64..).zip(&steps) {
            rig.run(number, step)?;
        }
    }
}
