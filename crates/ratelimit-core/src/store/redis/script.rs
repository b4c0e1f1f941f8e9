//! The script that decides a policy, assembled from the files in `lua/`.

use std::{fmt::Write as _, sync::OnceLock};

use crate::store::redis::unused::without_unused_functions;
use crate::{algorithm::Algorithm, policy::LimitGroup};

const HEAD: &str = include_str!("../../../lua/policy_head.lua");
const ONE: &str = include_str!("../../../lua/policy_one.lua");
const SEVERAL: &str = include_str!("../../../lua/policy_several.lua");
const SETTLE: &str = include_str!("../../../lua/policy_settle.lua");
const RESET: &str = include_str!("../../../lua/policy_reset.lua");
const BATCH: &str = include_str!("../../../lua/policy_batch.lua");
const BUCKET_HEAD: &str = include_str!("../../../lua/bucket_head.lua");
const BUCKET: &str = include_str!("../../../lua/bucket_one.lua");
const BUCKETS: &str = include_str!("../../../lua/bucket_batch.lua");

/// The files that an algorithm's functions live in, in order.
const fn files(algorithm: Algorithm) -> &'static [&'static str] {
    match algorithm {
        Algorithm::TokenBucket => &[include_str!("../../../lua/token_bucket.lua")],
        Algorithm::LeakyBucket => &[
            include_str!("../../../lua/token_bucket.lua"),
            include_str!("../../../lua/leaky_bucket.lua"),
        ],
        Algorithm::FixedWindow => &[include_str!("../../../lua/fixed_window.lua")],
        Algorithm::SlidingWindowLog => &[include_str!("../../../lua/sliding_window_log.lua")],
        Algorithm::SlidingWindowCounter => {
            &[include_str!("../../../lua/sliding_window_counter.lua")]
        }
        Algorithm::Concurrency => &[include_str!("../../../lua/concurrency.lua")],
        Algorithm::PenaltyBox => &[include_str!("../../../lua/penalty_box.lua")],
    }
}

/// A script and its hash.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) hash: String,
}

/// One script for each algorithm alone, and three for each set of them, made when first needed.
static ALONE: [OnceLock<Script>; Algorithm::ALL.len()] =
    [const { OnceLock::new() }; Algorithm::ALL.len()];
static TOGETHER: [OnceLock<Script>; 1 << Algorithm::ALL.len()] =
    [const { OnceLock::new() }; 1 << Algorithm::ALL.len()];
static SETTLING: [OnceLock<Script>; 1 << Algorithm::ALL.len()] =
    [const { OnceLock::new() }; 1 << Algorithm::ALL.len()];
static BATCHING: [OnceLock<Script>; 1 << Algorithm::ALL.len()] =
    [const { OnceLock::new() }; 1 << Algorithm::ALL.len()];

impl Script {
    /// The script that decides a hit on the limits of `groups`.
    pub(super) fn check(groups: &[LimitGroup]) -> &'static Script {
        if let [group] = groups
            && let [effective] = &*group.limits
        {
            let algorithm = effective.limit.algorithm();
            return ALONE[index(algorithm)].get_or_init(|| Script::singles(algorithm));
        }
        let needed = needed(groups);
        TOGETHER[needed].get_or_init(|| {
            let effective = |algorithm| {
                let functions = [Some("roll"), Some("state"), count_of(algorithm)];
                let names = functions.map(|name| function(algorithm, name));
                [&names[..], &[format!("'<{}'", numbers(algorithm))]].concat()
            };
            Script::set_of(needed, effective, SEVERAL)
        })
    }

    /// The script that decides a hit on a bucket, as it is nearly always found.
    pub(super) fn check_bucket() -> &'static Script {
        static SCRIPT: OnceLock<Script> = OnceLock::new();
        SCRIPT.get_or_init(|| Script::new(without_comments(&[BUCKET_HEAD, BUCKET].concat())))
    }

    /// The same for several hits.
    pub(super) fn check_bucket_batch() -> &'static Script {
        static SCRIPT: OnceLock<Script> = OnceLock::new();
        SCRIPT.get_or_init(|| Script::new(without_comments(&[BUCKET_HEAD, BUCKETS].concat())))
    }

    /// The script that decides several hits on the limits of `groups`.
    pub(super) fn check_batch(groups: &[LimitGroup]) -> &'static Script {
        let needed = needed(groups);
        BATCHING[needed].get_or_init(|| {
            let effective = |algorithm| {
                let names = ["roll", "state", "left"].map(|name| function(algorithm, Some(name)));
                [&names[..], &[format!("'<{}'", numbers(algorithm))]].concat()
            };
            Script::set_of(needed, effective, BATCH)
        })
    }

    /// The script that changes a charge which the limits of `groups` made.
    pub(super) fn settle(groups: &[LimitGroup]) -> &'static Script {
        let needed = needed(groups);
        SETTLING[needed].get_or_init(|| {
            let effective = |algorithm| {
                let functions = settling_functions(algorithm);
                functions.map(|name| function(algorithm, name)).to_vec()
            };
            Script::set_of(needed, effective, SETTLE)
        })
    }

    /// The script that forgets what keys have spent.
    pub(super) fn reset() -> &'static Script {
        static SCRIPT: OnceLock<Script> = OnceLock::new();
        SCRIPT.get_or_init(|| Script::assembled(std::iter::empty(), "", RESET))
    }

    fn singles(algorithm: Algorithm) -> Script {
        let (name, code, numbers) = (algorithm.as_str(), algorithm.code(), numbers(algorithm));
        let count = function(algorithm, count_of(algorithm));
        let binding = format!(
            "local code, roll, state, count, format = \
             {code}, {name}_roll, {name}_state, {count}, '<Bdd{numbers}'\n"
        );
        Script::assembled(files(algorithm).iter().copied(), &binding, ONE)
    }

    /// A script for a set of algorithms, each `effective` to what the tail needs of it.
    fn set_of(needed: usize, effective: impl Fn(Algorithm) -> Vec<String>, tail: &str) -> Script {
        let algorithms = Algorithm::ALL
            .into_iter()
            .filter(|&algorithm| needed & 1 << index(algorithm) != 0);
        let mut parts = Vec::new();
        let mut binding = "local algorithms = {\n".to_owned();
        for algorithm in algorithms {
            for file in files(algorithm) {
                if !parts.contains(file) {
                    parts.push(file);
                }
            }
            let (code, effective) = (algorithm.code(), effective(algorithm).join(", "));
            writeln!(binding, "  [{code}] = {{ {effective} }},")
                .expect("a string takes all that is written");
        }
        binding.push_str("}\n");
        Script::assembled(parts.into_iter(), &binding, tail)
    }

    fn assembled<'a>(parts: impl Iterator<Item = &'a str>, binding: &str, tail: &str) -> Script {
        let parts: String = parts.collect();
        let text = without_comments(&[HEAD, &parts, binding, tail].concat());
        Script::new(without_unused_functions(&text))
    }

    fn new(text: String) -> Script {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Script { text, hash }
    }
}

/// How many numbers a script tells of a limit.
pub(super) const fn wire_len(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::FixedWindow => 2,
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::SlidingWindowCounter => 3,
        Algorithm::SlidingWindowLog | Algorithm::Concurrency | Algorithm::PenaltyBox => 4,
    }
}

/// Their format.
fn numbers(algorithm: Algorithm) -> String {
    "d".repeat(wire_len(algorithm))
}

/// The set of all algorithms in `groups`.
fn needed(groups: &[LimitGroup]) -> usize {
    let limits = groups.iter().flat_map(|group| &group.limits);
    limits.fold(0, |set, effective| {
        set | 1 << index(effective.limit.algorithm())
    })
}

const fn index(algorithm: Algorithm) -> usize {
    algorithm.code() as usize - 1
}

/// The function that remembers denied hits, where there is one.
const fn count_of(algorithm: Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::SlidingWindowLog | Algorithm::PenaltyBox => Some("count"),
        _ => None,
    }
}

/// The functions with which a charge is changed; a penalty box has none.
const fn settling_functions(algorithm: Algorithm) -> [Option<&'static str>; 6] {
    match algorithm {
        Algorithm::Concurrency => [None, None, None, None, Some("release"), Some("renew")],
        Algorithm::PenaltyBox => [None; 6],
        _ => [
            Some("roll"),
            Some("state"),
            Some("left"),
            Some("refund"),
            None,
            None,
        ],
    }
}

/// The full name of an algorithm's function.
fn function(algorithm: Algorithm, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{}_{name}", algorithm.as_str()),
        None => "nil".to_owned(),
    }
}

/// The same script without the lines that only people read.
fn without_comments(text: &str) -> String {
    let read_by_lua = |line: &&str| !line.is_empty() && !line.trim_start().starts_with("--");
    text.lines()
        .filter(read_by_lua)
        .fold(String::new(), |script, line| script + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn policies_of_the_same_algorithms_share_a_script() {
        let one = Policy::parse("a", "1/s; fixed_window 2/s").unwrap();
        let two = Policy::parse("b", "fixed_window 5/h; 9/min; 10/d").unwrap();
        let three = Policy::parse("c", "fixed_window 5/h").unwrap();

        assert_eq!(
            Script::check(one.groups()).hash,
            Script::check(two.groups()).hash
        );
        assert_ne!(
            Script::check(one.groups()).hash,
            Script::check(three.groups()).hash
        );
    }

    #[test]
    fn each_function_is_there_once() {
        let both = Policy::parse("a", "1/s; leaky_bucket 2/s").unwrap();

        let text = &Script::check(both.groups()).text;

        assert_eq!(text.matches("function token_bucket_roll").count(), 1);
        assert!(!text.contains("fixed_window"));
    }
}
