//! The bytes that a limiter in memory takes: `memory_usage keys CONTENDER COUNT` for a key, `memory_usage log STAMPS`
//! for a full log of ours.

#![allow(
    clippy::float_arithmetic,
    reason = "bytes are divided among keys; no decision depends on them"
)]

use std::env;

use ratelimit_bench::{peer::memory, poll_now};
use ratelimit_core::{Key, Limiter, MemoryStore, Policy};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let bytes = match args[..] {
        ["keys", contender, count] => keys(contender, number(count)),
        ["log", stamps] => log(number(stamps)),
        _ => panic!("memory_usage keys CONTENDER COUNT, or memory_usage log STAMPS"),
    };
    println!("{bytes}");
}

fn number(text: &str) -> u32 {
    text.parse().expect("a number")
}

/// Bytes per key that the keys add to an empty limiter; the keys of the caller are not counted.
fn keys(name: &str, count: u32) -> f64 {
    let found = memory::MAKERS.into_iter().find(|(known, _)| *known == name);
    let (_, make) = found.expect("a contender");
    let mut contender = make(count as usize, memory::KeyBudget::Kept);
    let added = allocated(|| (0..count as usize).for_each(|key| (contender.ask)(key)));
    added / f64::from(count)
}

fn log(stamps: u32) -> f64 {
    let limiter = Limiter::new(MemoryStore::new());
    let limits = format!("sliding_window_log {stamps}/d");
    let policy = Policy::parse("bench", &limits).expect("limits that are well formed");
    let key = Key::new("user:12345678").expect("a key that is not empty");
    allocated(|| {
        let verdict = poll_now(limiter.check_cost(&policy, &key, u64::from(stamps)));
        assert!(verdict.is_allowed());
    })
}

#[expect(clippy::cast_precision_loss, reason = "no machine has 2^53 bytes")]
fn allocated(work: impl FnOnce()) -> f64 {
    allocation_counter::measure(work).bytes_current as f64
}
