//! Our own works, for callgrind to watch.

use ratelimit_bench::{fallback, layer, memory, prefetch, tell_counts};

const TIMES: u32 = 10_000;

fn main() {
    tell_counts(memory::checks(), TIMES);
    tell_counts(prefetch::checks(), TIMES);
    tell_counts(fallback::checks(), TIMES);
    tell_counts(layer::requests(), TIMES);
}
