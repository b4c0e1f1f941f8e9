//! Works of local budgets, for callgrind to watch: prefetched hits, and the local fallback of checks on Redis.

use ratelimit_bench::{fallback, memory, prefetch, tell_counts};

const TIMES: u32 = 10_000;
/// A check on Redis takes longer.
const REDIS_TIMES: u32 = 2_000;

fn main() {
    let in_memory = memory::checks().into_iter();
    tell_counts(
        in_memory.filter(|work| work.name == "memory.token_bucket.allowed"),
        TIMES,
    );
    tell_counts(prefetch::checks(), TIMES);
    tell_counts(fallback::checks(), TIMES);
    tell_counts(fallback::redis_checks(), REDIS_TIMES);
}
