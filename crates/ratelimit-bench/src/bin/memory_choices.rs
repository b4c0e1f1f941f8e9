//! Structures that the memory store could be built on, beside the store: instructions of a check under
//! callgrind, and bytes of a key. `memory_choices report` prints the table of decision 0012.
//!
//! A prototype keeps 32 bytes for each key, as much as a budget of one limit, and decides by one number. The
//! store decides by its whole engine, for policies of any kind.

#![allow(
    clippy::mut_mutex_lock,
    reason = "taking the lock is part of what is counted"
)]

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    env,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ahash::RandomState;
use hashbrown::HashMap;
use quick_cache::{Lifecycle, UnitWeighter, unsync};
use ratelimit_bench::{Work, count, poll_now, tell_counts};
use ratelimit_core::{
    Clock, Key, MemoryStore, Policy, Timestamp,
    store::{Hit, Store as _},
};

const TIMES: u32 = 2_000;
const KEYS: u64 = 10_000;
const WEIGHED_KEYS: u64 = 100_000;
const START: u64 = 1_700_000_000_000_000;

/// Between two checks, in microseconds.
const PAUSE: u64 = 1_000;

/// A limit as prototypes know it: `burst` hits at once, one more in each `interval` microseconds.
#[derive(Clone, Copy)]
struct BucketRate {
    text: &'static str,
    burst: u64,
    interval: u64,
}

const PLENTY: BucketRate = BucketRate {
    text: "1000000/d",
    burst: 1_000_000,
    interval: 86_400,
};
/// One hit leaves budget, and counts for hours.
const SLOW: BucketRate = BucketRate {
    text: "10/d",
    burst: 10,
    interval: 8_640_000_000,
};
const ONE_A_DAY: BucketRate = BucketRate {
    text: "1/d",
    burst: 1,
    interval: 86_400_000_000,
};

/// The state of a key in a prototype.
#[derive(Clone, Copy, Default)]
struct Bucket {
    full_at: u64,
    recovers_at: u64,
    _rest: [u64; 2],
}

impl Bucket {
    fn charge(&mut self, rate: BucketRate, now: u64) -> bool {
        let full_at = self.full_at.max(now) + rate.interval;
        if full_at > now + rate.burst * rate.interval {
            return false;
        }
        self.full_at = full_at;
        self.recovers_at = full_at.saturating_sub((rate.burst - 1) * rate.interval);
        true
    }

    const fn is_exhausted(&self, now: u64) -> bool {
        self.recovers_at > now
    }
}

trait Choice {
    fn hit(&mut self, key: &Key, now: u64) -> bool;
    fn len(&mut self) -> usize;
}

type Make = fn(u64, BucketRate) -> Box<dyn Choice>;

const CHOICES: [(&str, Make); 4] = [
    ("store", |capacity, rate| {
        Box::new(OurStore::new(capacity, rate))
    }),
    ("quick_cache", |capacity, rate| {
        Box::new(Pinned::new(capacity, rate))
    }),
    ("moka", |capacity, rate| {
        let cache = moka::sync::Cache::builder()
            .max_capacity(capacity)
            .build_with_hasher(RandomState::new());
        Box::new(Moka { cache, rate })
    }),
    ("hashbrown", |capacity, rate| {
        Box::new(Mutex::new(Queued::new(capacity, rate)))
    }),
];

/// The store of this workspace.
struct OurStore {
    store: MemoryStore,
    policy: Policy,
    clock: Clock,
}

impl OurStore {
    fn new(capacity: u64, rate: BucketRate) -> OurStore {
        let clock = Clock::manual(Timestamp::from_micros(START));
        let capacity = usize::try_from(capacity).expect("a number of keys");
        OurStore {
            store: MemoryStore::new().capacity(capacity).clock(clock.clone()),
            policy: Policy::parse("counted", rate.text).expect("limits that are well formed"),
            clock,
        }
    }
}

impl Choice for OurStore {
    fn hit(&mut self, key: &Key, _: u64) -> bool {
        self.clock.advance(Duration::from_micros(PAUSE));
        let decision = poll_now(self.store.hit(Hit::new(&self.policy, key)));
        decision.is_ok_and(|decision| decision.is_allowed())
    }

    fn len(&mut self) -> usize {
        self.store.stats().keys
    }
}

/// A cache behind a lock, whose exhausted entries are pinned.
struct Pinned {
    cache: Mutex<unsync::Cache<Key, Bucket, UnitWeighter, RandomState, Pin>>,
    now: Rc<Cell<u64>>,
    rate: BucketRate,
}

#[derive(Clone)]
struct Pin(Rc<Cell<u64>>);

impl Lifecycle<Key, Bucket> for Pin {
    type RequestState = ();

    fn is_pinned(&self, _: &Key, bucket: &Bucket) -> bool {
        bucket.is_exhausted(self.0.get())
    }
}

impl Pinned {
    fn new(capacity: u64, rate: BucketRate) -> Pinned {
        let now = Rc::new(Cell::new(START));
        let items = usize::try_from(capacity).expect("a number of keys");
        let cache = unsync::Cache::with(
            items,
            capacity,
            UnitWeighter,
            RandomState::new(),
            Pin(Rc::clone(&now)),
        );
        Pinned {
            cache: Mutex::new(cache),
            now,
            rate,
        }
    }
}

impl Choice for Pinned {
    fn hit(&mut self, key: &Key, now: u64) -> bool {
        self.now.set(now);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut bucket) = cache.get_mut(key) {
            return bucket.charge(self.rate, now);
        }
        let mut bucket = Bucket::default();
        let is_allowed = bucket.charge(self.rate, now);
        cache.insert(key.clone(), bucket);
        is_allowed
    }

    fn len(&mut self) -> usize {
        self.cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }
}

/// A concurrent cache that admits by frequency; its values are shared, so they are locked one by one.
struct Moka {
    cache: moka::sync::Cache<Key, Arc<Mutex<Bucket>>, RandomState>,
    rate: BucketRate,
}

impl Choice for Moka {
    fn hit(&mut self, key: &Key, now: u64) -> bool {
        let bucket = self.cache.get(key);
        let bucket = bucket.unwrap_or_else(|| self.cache.get_with(key.clone(), Arc::default));
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.charge(self.rate, now)
    }

    fn len(&mut self) -> usize {
        self.cache.run_pending_tasks();
        usize::try_from(self.cache.entry_count()).expect("a number of keys")
    }
}

/// A map, a queue of keys with budget and a heap of exhausted ones, which hold each key once more.
struct Queued {
    map: HashMap<Key, Bucket, RandomState>,
    with_budget: VecDeque<Key>,
    exhausted: BinaryHeap<Reverse<(u64, Key)>>,
    capacity: usize,
    rate: BucketRate,
}

impl Queued {
    fn new(capacity: u64, rate: BucketRate) -> Queued {
        Queued {
            map: HashMap::with_hasher(RandomState::new()),
            with_budget: VecDeque::new(),
            exhausted: BinaryHeap::new(),
            capacity: usize::try_from(capacity).expect("a number of keys"),
            rate,
        }
    }

    fn hit(&mut self, key: &Key, now: u64) -> bool {
        let rate = self.rate;
        if let Some(bucket) = self.map.get_mut(key) {
            let is_allowed = bucket.charge(rate, now);
            if is_allowed && bucket.is_exhausted(now) {
                let recovers_at = bucket.recovers_at;
                self.exhausted.push(Reverse((recovers_at, key.clone())));
            }
            return is_allowed;
        }
        while self.map.len() >= self.capacity && self.evict(now) {}
        let mut bucket = Bucket::default();
        let is_allowed = bucket.charge(rate, now);
        if bucket.is_exhausted(now) {
            let recovers_at = bucket.recovers_at;
            self.exhausted.push(Reverse((recovers_at, key.clone())));
        } else {
            self.with_budget.push_back(key.clone());
        }
        self.map.insert(key.clone(), bucket);
        is_allowed
    }

    fn evict(&mut self, now: u64) -> bool {
        while let Some(key) = self.with_budget.pop_front() {
            let bucket = self.map.get(&key);
            if bucket.is_some_and(|bucket| !bucket.is_exhausted(now)) {
                return self.map.remove(&key).is_some();
            }
        }
        while let Some(Reverse((recovers_at, key))) = self.exhausted.pop() {
            let bucket = self.map.get(&key);
            if bucket.is_some_and(|bucket| bucket.recovers_at == recovers_at) {
                return self.map.remove(&key).is_some();
            }
        }
        false
    }
}

impl Choice for Mutex<Queued> {
    fn hit(&mut self, key: &Key, now: u64) -> bool {
        self.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .hit(key, now)
    }

    fn len(&mut self) -> usize {
        self.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .map
            .len()
    }
}

fn key(number: u64) -> Key {
    Key::new(format!("user:{number:08}")).expect("a key that is not empty")
}

/// A choice that is filled with `keys` keys, and the time.
fn filled(make: Make, capacity: u64, rate: BucketRate, keys: u64) -> (Box<dyn Choice>, u64) {
    let (mut choice, mut now) = (make(capacity, rate), START);
    for number in 0..keys {
        now += PAUSE;
        choice.hit(&key(number), now);
    }
    (choice, now)
}

fn known(name: &str, make: Make) -> Work {
    let (mut choice, mut now) = filled(make, 2 * KEYS, PLENTY, KEYS);
    let key = key(KEYS / 2);
    Work::new(format!("known.{name}"), move || {
        now += PAUSE;
        choice.hit(&key, now);
    })
}

/// New keys to a full structure; making the key is counted as well, and as `key.made` by itself.
fn new(name: &str, make: Make, rate: BucketRate) -> Work {
    let mut number = 2 * KEYS;
    let (mut choice, mut now) = filled(make, KEYS, rate, number);
    Work::new(name, move || {
        now += PAUSE;
        number += 1;
        choice.hit(&key(number), now);
    })
}

fn works() -> Vec<Work> {
    let mut number = 0;
    let mut works = vec![Work::new("key.made", move || {
        number += 1;
        std::hint::black_box(key(number));
    })];
    for (name, make) in CHOICES {
        works.push(known(name, make));
        works.push(new(&format!("new.{name}"), make, SLOW));
        works.push(new(&format!("new_among_exhausted.{name}"), make, ONE_A_DAY));
    }
    works
}

fn main() {
    if !env::args().any(|arg| arg == "report") {
        return tell_counts(works(), TIMES);
    }
    for (name, instructions) in count("memory_choices") {
        println!("{name}: {instructions:.0} instructions");
    }
    for (name, make) in CHOICES {
        for (kind, rate) in [("with budget", SLOW), ("exhausted", ONE_A_DAY)] {
            let most = allocation_counter::measure(|| {
                let filled = filled(make, 2 * WEIGHED_KEYS, rate, WEIGHED_KEYS);
                drop(std::hint::black_box(filled));
            });
            println!(
                "{name}: at most {} bytes a key {kind}",
                most.bytes_max / WEIGHED_KEYS
            );
        }
        let (mut choice, now) = filled(make, KEYS, ONE_A_DAY, 2 * KEYS);
        let kept = choice.len();
        let last = !choice.hit(&key(2 * KEYS - 1), now);
        let first = !choice.hit(&key(0), now);
        println!(
            "{name}: {kept} keys kept of {KEYS}, all exhausted; last key is known: {last}, first: {first}"
        );
    }
}
