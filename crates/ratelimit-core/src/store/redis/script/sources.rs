//! The files in `lua/`, as part of the binary.

use crate::algorithm::Algorithm;

pub(super) const PRELUDE: &str = include_str!("../../../../lua/prelude.lua");
pub(super) const CHECK_ONE: &str = include_str!("../../../../lua/check_one.lua");
pub(super) const CHECK: &str = include_str!("../../../../lua/check.lua");
pub(super) const CHECK_BATCH: &str = include_str!("../../../../lua/check_batch.lua");
pub(super) const SETTLE: &str = include_str!("../../../../lua/settle.lua");
pub(super) const RESET: &str = include_str!("../../../../lua/reset.lua");
pub(super) const BUCKET_PRELUDE: &str = include_str!("../../../../lua/bucket_prelude.lua");
pub(super) const BUCKET_STEP: &str = include_str!("../../../../lua/bucket_step.lua");
pub(super) const CHECK_BUCKET: &str = include_str!("../../../../lua/check_bucket.lua");
pub(super) const PREFETCH: &str = include_str!("../../../../lua/prefetch.lua");
pub(super) const PREFETCH_BUCKET: &str = include_str!("../../../../lua/prefetch_bucket.lua");
pub(super) const CHECK_BUCKET_BATCH: &str = include_str!("../../../../lua/check_bucket_batch.lua");

/// The files with the functions of an algorithm, in order. A leaky bucket calls the functions of a token bucket.
pub(super) const fn files(algorithm: Algorithm) -> &'static [&'static str] {
    match algorithm {
        Algorithm::TokenBucket => &[include_str!("../../../../lua/token_bucket.lua")],
        Algorithm::LeakyBucket => &[
            include_str!("../../../../lua/token_bucket.lua"),
            include_str!("../../../../lua/leaky_bucket.lua"),
        ],
        Algorithm::FixedWindow => &[include_str!("../../../../lua/fixed_window.lua")],
        Algorithm::SlidingWindowLog => &[include_str!("../../../../lua/sliding_window_log.lua")],
        Algorithm::SlidingWindowCounter => {
            &[include_str!("../../../../lua/sliding_window_counter.lua")]
        }
        Algorithm::Concurrency => &[include_str!("../../../../lua/concurrency.lua")],
        Algorithm::PenaltyBox => &[include_str!("../../../../lua/penalty_box.lua")],
    }
}
