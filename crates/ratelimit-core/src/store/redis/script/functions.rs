//! The functions of each algorithm that the scripts call, by their names in `lua/`.

use crate::algorithm::Algorithm;

/// The function that records denied hits, where the algorithm has one. A limit that records them is never batched.
pub(super) const fn count_of(algorithm: Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::SlidingWindowLog | Algorithm::PenaltyBox => Some("count"),
        _ => None,
    }
}

/// The functions that change a charge, in the order in which `settle.lua` unpacks them. A penalty box has none.
pub(super) const fn settle_functions(algorithm: Algorithm) -> [Option<&'static str>; 7] {
    match algorithm {
        Algorithm::Concurrency => [None, None, None, None, Some("release"), Some("renew"), None],
        Algorithm::PenaltyBox => [None; 7],
        _ => [
            Some("roll"),
            Some("state"),
            Some("left"),
            Some("refund"),
            None,
            None,
            Some("credit"),
        ],
    }
}

/// The name of an algorithm's function in Lua, or `nil`.
pub(super) fn function(algorithm: Algorithm, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{}_{name}", prefix(algorithm)),
        None => "nil".to_owned(),
    }
}

/// The name in front of the functions of an algorithm. A leaky bucket has those of a token bucket.
pub(super) const fn prefix(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::LeakyBucket => Algorithm::TokenBucket.as_str(),
        algorithm => algorithm.as_str(),
    }
}
