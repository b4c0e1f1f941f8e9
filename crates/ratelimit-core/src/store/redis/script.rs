//! The script that decides a policy, assembled from the files in `lua/`.

use std::{fmt::Write as _, sync::OnceLock};

use crate::{algorithm::Algorithm, policy::Policy};

const HEAD: &str = include_str!("../../../lua/policy_head.lua");
const ONE: &str = include_str!("../../../lua/policy_one.lua");
const SEVERAL: &str = include_str!("../../../lua/policy_several.lua");

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
    }
}

/// A script and its hash.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) hash: String,
}

/// One script for each algorithm alone, and one for each set of them, made when first needed.
static ALONE: [OnceLock<Script>; Algorithm::ALL.len()] =
    [const { OnceLock::new() }; Algorithm::ALL.len()];
static TOGETHER: [OnceLock<Script>; 1 << Algorithm::ALL.len()] =
    [const { OnceLock::new() }; 1 << Algorithm::ALL.len()];

impl Script {
    /// The script that decides `policy`.
    pub(super) fn of(policy: &Policy) -> &'static Script {
        if let [limit] = policy.limits() {
            let algorithm = limit.algorithm();
            return ALONE[place(algorithm)].get_or_init(|| Script::alone(algorithm));
        }
        let needed = policy
            .limits()
            .iter()
            .fold(0, |set, limit| set | 1 << place(limit.algorithm()));
        TOGETHER[needed].get_or_init(|| Script::together(needed))
    }

    fn alone(algorithm: Algorithm) -> Script {
        let binding = format!(
            "local roll, state, count = {name}_roll, {name}_state, {}\n",
            count_of(algorithm),
            name = algorithm.as_str(),
        );
        Script::assembled(files(algorithm).iter().copied(), &binding, ONE)
    }

    fn together(needed: usize) -> Script {
        let algorithms = Algorithm::ALL
            .into_iter()
            .filter(|&algorithm| needed & 1 << place(algorithm) != 0);
        let mut parts = Vec::new();
        let mut binding = "local algorithms = {\n".to_owned();
        for algorithm in algorithms {
            for file in files(algorithm) {
                if !parts.contains(file) {
                    parts.push(file);
                }
            }
            let (code, name) = (algorithm.code(), algorithm.as_str());
            let count = count_of(algorithm);
            writeln!(
                binding,
                "  [{code}] = {{ {name}_roll, {name}_state, {count} }},"
            )
            .expect("a string takes all that is written");
        }
        binding.push_str("}\n");
        Script::assembled(parts.into_iter(), &binding, SEVERAL)
    }

    fn assembled<'a>(parts: impl Iterator<Item = &'a str>, binding: &str, tail: &str) -> Script {
        let parts: String = parts.collect();
        let text = without_comments(&[HEAD, &parts, binding, tail].concat());
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Script { text, hash }
    }
}

const fn place(algorithm: Algorithm) -> usize {
    algorithm.code() as usize - 1
}

/// The function that remembers denied hits, where there is one.
const fn count_of(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::SlidingWindowLog => "sliding_window_log_count",
        _ => "nil",
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

    #[test]
    fn policies_of_the_same_algorithms_share_a_script() {
        let one = Policy::parse("a", "1/s; fixed_window 2/s").unwrap();
        let two = Policy::parse("b", "fixed_window 5/h; 9/min; 10/d").unwrap();
        let three = Policy::parse("c", "fixed_window 5/h").unwrap();

        assert_eq!(Script::of(&one).hash, Script::of(&two).hash);
        assert_ne!(Script::of(&one).hash, Script::of(&three).hash);
    }

    #[test]
    fn each_function_is_there_once() {
        let both = Policy::parse("a", "1/s; leaky_bucket 2/s").unwrap();

        let text = &Script::of(&both).text;

        assert_eq!(text.matches("function token_bucket_roll").count(), 1);
        assert!(!text.contains("fixed_window"));
    }
}
