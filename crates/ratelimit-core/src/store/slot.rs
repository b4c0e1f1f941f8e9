//! Slot numbers: unique over all processes that share a store, without coordination.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use ahash::RandomState;

/// Returns a new number for the slot of a hit; never 0, which means that a hit has none.
///
/// It is `SplitMix64` with a random start for each process:
///
/// - Within a process no number repeats for 2^64 calls, because every step is a bijection.
/// - Between processes two numbers are equal with the probability of random 64-bit numbers: below 1 in 10^11
///   for 10,000 live slots.
/// - A client that sees a number cannot derive the numbers of others without the start, which never leaves the
///   process. Numbers are still no secrets: a receipt is what proves a charge.
pub(super) fn new_slot_id() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    static STEPS: AtomicU64 = AtomicU64::new(0);
    // `RandomState` is seeded by the operating system, once for each process.
    let start = START.get_or_init(|| RandomState::new().hash_one(std::process::id()));
    let step = STEPS.fetch_add(1, Ordering::Relaxed);
    let number = spread(start.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    number.max(1)
}

/// The finaliser of `SplitMix64`: a bijection of 64 bits that makes consecutive inputs look random.
const fn spread(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_comes_twice() {
        let numbers: HashSet<u64> = (0..100_000).map(|_| new_slot_id()).collect();

        assert_eq!(numbers.len(), 100_000);
        assert!(!numbers.contains(&0));
    }
}
