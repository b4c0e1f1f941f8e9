//! Charging hits that a local fallback let pass: the memory store and Redis do the same.

use ratelimit_core::{
    KeySet, Timestamp,
    store::{Adjustment, Hit, Receipt},
};
use ratelimit_tests::{random::Random, redis::TestRedis};

use crate::stores::{TestStore, key, policy, told};

const TRACES: u64 = 400;
/// Short enough that the memory store never sweeps, which a clock that steps back could see.
const STEPS: usize = 40;
const LIMITS: [&str; 10] = [
    "token_bucket 3/s burst 9",
    "leaky_bucket 2/s queue 6",
    "fixed_window 6/4s",
    "sliding_window_log 6/3s",
    // A lowered limit has less than nothing left.
    "sliding_window_log 3/3s",
    "sliding_window_log 3/40d",
    "sliding_window_counter 7/2s",
    "concurrency 3 lease 2s; fixed_window 9/5s",
    "5/s; fixed_window 20/9s; sliding_window_counter 9/3s",
    "sliding_window_log 6/3s; fixed_window 5/4s; sliding_window_log 9/5s",
];

#[tokio::test]
async fn uncounted_hits_are_charged_the_same_on_both_stores() {
    let redis = TestRedis::start().await;
    let mut caught_up = 0;
    for trace in 0..TRACES {
        let stores = TestStore::all(&redis).await;
        let mut random = Random::new(trace);
        let (subject, slot) = (key(&format!("t{trace}")), trace + 1);
        // One policy in some traces, and a change of limits at any step in others.
        let limits: &[&str] = match trace % 3 {
            0 => &LIMITS,
            1 => &LIMITS[3..5],
            _ => &[random.one_of(&LIMITS)],
        };
        let mut now = 10_000_000_u64;
        let mut receipts: Vec<Receipt> = Vec::new();
        for step in 0..STEPS {
            let limit = policy("uncounted", random.one_of(limits));
            now = match random.range(0, 7) {
                0 => now
                    .saturating_sub(random.range(0, 5_000_000))
                    .max(1_000_000),
                1 => now,
                _ => now + random.range(0, 1_500_000),
            };
            for store in &stores {
                store.clock.set(Timestamp::from_micros(now));
            }
            let hit = Hit::new(&limit, &subject)
                .cost(random.range(1, 4))
                .slot(slot);
            match random.range(0, 9) {
                0..=3 => {
                    let one = stores[0].store.hit(hit).await.unwrap();
                    for store in &stores[1..] {
                        let other = store.store.hit(hit).await.unwrap();
                        assert_eq!(told(&one), told(&other), "trace {trace}, step {step}");
                    }
                    receipts.extend(Receipt::new(hit, &one));
                }
                4..=8 if !receipts.is_empty() => {
                    let index = random.range(0, receipts.len() as u64 - 1);
                    let receipt = &receipts[usize::try_from(index).unwrap()];
                    let units: [u64; 8] = std::array::from_fn(|_| random.range(0, 5));
                    let change = Adjustment::catch_up(&units);
                    let one = stores[0].store.settle(receipt, change).await.unwrap();
                    for store in &stores[1..] {
                        let other = store.store.settle(receipt, change).await.unwrap();
                        assert_eq!(one, other, "trace {trace}, step {step}");
                    }
                    caught_up += 1;
                }
                _ if random.one_in(4) => {
                    for store in &stores {
                        let keys = KeySet::new(subject.clone());
                        store.store.reset(&limit, &keys).await.unwrap();
                    }
                }
                _ => {}
            }
        }
    }
    println!("{caught_up} catch-ups were the same on both stores");
    assert!(caught_up > TRACES, "{caught_up}");
}
