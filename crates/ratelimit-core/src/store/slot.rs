//! Numbers for slots that no other hit has, in this process or another.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use ahash::RandomState;

/// A number that no other hit has: a secret start, and each step spread over all 64 bits.
pub(super) fn new_slot_id() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    static STEPS: AtomicU64 = AtomicU64::new(0);
    let start = START.get_or_init(|| RandomState::new().hash_one(std::process::id()));
    let step = STEPS.fetch_add(1, Ordering::Relaxed);
    let number = spread(start.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    number.max(1)
}

/// Different numbers for different numbers.
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
