//! The files in `lua/`, as part of the binary.

use crate::algorithm::Algorithm;

/// The head of every general script.
pub(super) const PRELUDE: &str = include_str!("../../../../lua/prelude.lua");
/// One limit.
pub(super) const CHECK_ONE: &str = include_str!("../../../../lua/check_one.lua");
/// Several limits, and several keys.
pub(super) const CHECK: &str = include_str!("../../../../lua/check.lua");
/// One hit or several on the limits of one key each.
pub(super) const CHECK_UNROLLED: &str = include_str!("../../../../lua/check_unrolled.lua");
/// Hits under several policies.
pub(super) const CHECK_JOINT: &str = include_str!("../../../../lua/check_joint.lua");
/// Hits on several fixed windows.
pub(super) const CHECK_JOINT_WINDOWS: &str =
    include_str!("../../../../lua/check_joint_windows.lua");
/// The part of each window in it.
pub(super) const JOINT_WINDOW: &str = include_str!("../../../../lua/joint_window.lua");
/// Changes to a charge.
pub(super) const SETTLE: &str = include_str!("../../../../lua/settle.lua");
/// Clears a key.
pub(super) const RESET: &str = include_str!("../../../../lua/reset.lua");
/// Reads the values of all keys.
pub(super) const READ_BUDGETS: &str = include_str!("../../../../lua/read_budgets.lua");
/// Writes the values that have changed.
pub(super) const WRITE_BUDGETS: &str = include_str!("../../../../lua/write_budgets.lua");

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

/// The part of an algorithm in `check_unrolled.lua`. None for algorithms that record denied hits or hold slots.
pub(super) const fn unrolled_file(algorithm: Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            Some(include_str!("../../../../lua/unrolled_token_bucket.lua"))
        }
        Algorithm::FixedWindow => Some(include_str!("../../../../lua/unrolled_fixed_window.lua")),
        Algorithm::SlidingWindowLog => Some(include_str!(
            "../../../../lua/unrolled_sliding_window_log.lua"
        )),
        Algorithm::SlidingWindowCounter => Some(include_str!(
            "../../../../lua/unrolled_sliding_window_counter.lua"
        )),
        Algorithm::Concurrency | Algorithm::PenaltyBox => None,
    }
}
