//! Limiters in memory: ours and others, asked in the same way.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroU32,
    sync::Mutex,
    time::{Duration, SystemTime},
};

use governor::{Quota, RateLimiter};
use limitador::limit::{Context, Limit, Namespace};
use ratelimit_core::{
    Key, Limiter, MemoryStore, Policy,
    store::{Hit, Store as _},
};

use crate::workload::poll_now;

const DAY: u64 = 86_400;
const KEPT: u32 = 1_000;

/// A limiter that is asked by the number of a key.
pub struct Contender {
    /// Its name.
    pub name: &'static str,
    /// Asks for one unit.
    pub ask: Box<dyn FnMut(usize)>,
}

/// How much each key may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyBudget {
    /// More than any run spends.
    Plenty,
    /// A thousand a day: what is spent is still remembered at the end of a run.
    Kept,
}

/// Makes a contender for a number of keys.
pub type Maker = fn(usize, KeyBudget) -> Contender;

/// All contenders by their names on a command line; ours first, then the peer whose numbers are goals.
pub const MAKERS: [(&str, Maker); 5] = [
    ("limiter", limiter),
    ("governor", governor),
    ("store", store),
    ("throttlecrab", throttlecrab),
    ("limitador", limitador),
];

/// Our memory store alone, as a limiter of somebody else would ask it.
///
/// # Panics
///
/// Never: its limits are well formed.
pub fn store(keys: usize, budget: KeyBudget) -> Contender {
    let store = MemoryStore::new().capacity(2 * keys.max(1_000));
    let (policy, keys) = (policy(budget), our_keys(keys));
    contender("our store", move |number| {
        let answer = poll_now(store.hit(Hit::new(&policy, &keys[number])));
        assert!(answer.is_ok());
    })
}

/// Our limiter over the memory store, with its metrics, as a service asks it.
///
/// # Panics
///
/// Never: its limits are well formed.
pub fn limiter(keys: usize, budget: KeyBudget) -> Contender {
    let limiter = Limiter::new(MemoryStore::new().capacity(2 * keys.max(1_000)));
    let (policy, keys) = (policy(budget), our_keys(keys));
    contender("ours", move |number| {
        let verdict = limiter.check(&policy, &keys[number]).take_ready();
        assert!(verdict.is_some());
    })
}

/// governor, keyed by text.
///
/// # Panics
///
/// Never: its quota is valid.
pub fn governor(keys: usize, budget: KeyBudget) -> Contender {
    let quota = match budget {
        KeyBudget::Plenty => Quota::per_second(NonZeroU32::MAX),
        KeyBudget::Kept => {
            let burst = NonZeroU32::new(KEPT).expect("more than nothing");
            let each = Duration::from_secs(DAY) / KEPT;
            let quota = Quota::with_period(each).expect("more than no time");
            quota.allow_burst(burst)
        }
    };
    let limiter = RateLimiter::dashmap(quota);
    let keys = names(keys);
    contender("governor", move |number| {
        let _ = limiter.check_key(&keys[number]);
    })
}

/// throttlecrab behind a lock, since it is made for one thread; with the store that cleans by time, for
/// the adaptive one looks at every key for each new one.
///
/// # Panics
///
/// Never: its limits are valid.
pub fn throttlecrab(keys: usize, budget: KeyBudget) -> Contender {
    let store = throttlecrab::PeriodicStore::new();
    let limiter = Mutex::new(throttlecrab::RateLimiter::new(store));
    let keys = names(keys);
    let (burst, period) = match budget {
        KeyBudget::Plenty => (i64::from(u32::MAX), 1),
        KeyBudget::Kept => (i64::from(KEPT), i64::try_from(DAY).expect("a day is short")),
    };
    contender("throttlecrab", move |number| {
        let mut limiter = limiter.lock().expect("nobody panicked");
        let answer = limiter.rate_limit(&keys[number], burst, burst, period, 1, SystemTime::now());
        assert!(answer.is_ok());
    })
}

/// limitador in memory, with one variable.
///
/// # Panics
///
/// Never: its limit is well formed.
pub fn limitador(keys: usize, budget: KeyBudget) -> Contender {
    let most = match budget {
        KeyBudget::Plenty => u64::from(u32::MAX),
        KeyBudget::Kept => u64::from(KEPT),
    };
    let variable = "user".try_into().expect("an expression");
    let limit = Limit::new("bench", most, DAY, vec![], vec![variable]);
    let limiter = limitador::RateLimiter::new(2 * keys.max(1_000) as u64);
    limiter.add_limit(limit);
    let (namespace, keys) = (Namespace::from("bench"), names(keys));
    contender("limitador", move |number| {
        let values = HashMap::from([("user".to_owned(), keys[number].clone())]);
        let context = Context::from(values);
        let answer = limiter.check_rate_limited_and_update(&namespace, &context, 1);
        assert!(answer.is_ok());
    })
}

fn contender(name: &'static str, ask: impl FnMut(usize) + 'static) -> Contender {
    Contender {
        name,
        ask: Box::new(ask),
    }
}

fn policy(budget: KeyBudget) -> Policy {
    let limits = match budget {
        KeyBudget::Plenty => "token_bucket 1000000/ms",
        KeyBudget::Kept => "token_bucket 1000/d",
    };
    Policy::parse("bench", limits).expect("limits that are well formed")
}

fn our_keys(count: usize) -> Vec<Key> {
    let keys = names(count).into_iter().map(Key::new);
    keys.map(|key| key.expect("a key that is not empty"))
        .collect()
}

/// As long as the number of a user is.
fn names(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("user:{number:08}"))
        .collect()
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Contender").field(&self.name).finish()
    }
}
