//! The files in `lua/`, as part of the binary.

use crate::algorithm::Algorithm;

/// The head of every general script.
pub(super) const PRELUDE: &str = include_str!("../../../../lua/prelude.lua");
/// Reads a frame of a value.
pub(super) const FRAME: &str = include_str!("../../../../lua/frame.lua");
/// The frames of a value that are kept.
pub(super) const REST_OF: &str = include_str!("../../../../lua/rest_of.lua");
/// The second part of scripts that change charges.
pub(super) const CHANGES: &str = include_str!("../../../../lua/changes.lua");
/// The sections of an algorithm as functions.
pub(super) const STEP: &str = include_str!("../../../../lua/step.lua");
/// One hit or several, on any limits and keys.
pub(super) const CHECK: &str = include_str!("../../../../lua/check.lua");
/// One hit or several on the limits of one key each.
pub(super) const CHECK_UNROLLED: &str = include_str!("../../../../lua/check_unrolled.lua");
/// Hits on several fixed windows.
pub(super) const CHECK_JOINT_WINDOWS: &str =
    include_str!("../../../../lua/check_joint_windows.lua");
/// Changes to a charge.
pub(super) const SETTLE: &str = include_str!("../../../../lua/settle.lua");
/// Clears a key.
pub(super) const RESET: &str = include_str!("../../../../lua/reset.lua");

/// The file of an algorithm. A leaky bucket takes the step of a token bucket.
pub(super) const fn file(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            include_str!("../../../../lua/token_bucket.lua")
        }
        Algorithm::FixedWindow => include_str!("../../../../lua/fixed_window.lua"),
        Algorithm::SlidingWindowLog => include_str!("../../../../lua/sliding_window_log.lua"),
        Algorithm::SlidingWindowCounter => {
            include_str!("../../../../lua/sliding_window_counter.lua")
        }
        Algorithm::Concurrency => include_str!("../../../../lua/concurrency.lua"),
        Algorithm::PenaltyBox => include_str!("../../../../lua/penalty_box.lua"),
    }
}
