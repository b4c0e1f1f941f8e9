//! A warning about limiters in memory that are made again and again.

use std::sync::atomic::{AtomicU32, Ordering};

use ratelimit_core::Limiter;

/// The number of limiters that looks like one for each request. Programs with a limiter for each route stay below it.
const TOO_MANY: u32 = 1_000;

/// Counts the limiters in memory that belong to one layer only, and logs a warning about the thousandth of the process.
///
/// A limiter that is made for each request begins with whole budgets and never denies.
pub(crate) fn count_limiter(limiter: &Limiter) {
    static MADE: AtomicU32 = AtomicU32::new(0);
    if !limiter.is_unshared_memory() || MADE.load(Ordering::Relaxed) >= TOO_MANY {
        return;
    }
    if MADE.fetch_add(1, Ordering::Relaxed) + 1 == TOO_MANY {
        let warning = "1,000 layers with separate limiters in memory were made: a layer or limiter that is made for each \
                       request never denies; make it once, at the start, and clone it";
        tracing::warn!("{warning}");
        if !tracing::dispatcher::has_been_set() {
            eprintln!("rate limit: {warning}");
        }
    }
}
