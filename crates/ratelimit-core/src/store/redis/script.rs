//! The scripts, assembled from the files in `lua/`.
//!
//! | script | parts, in order |
//! |---|---|
//! | `check` | `prelude.lua`, the functions of each algorithm, a table of them, `check.lua` |
//! | `settle` | `prelude.lua`, `changes.lua`, the functions of each algorithm, a table, `settle.lua` |
//! | `reset` | `prelude.lua`, `changes.lua`, `reset.lua` |
//! | `check_unrolled` | the file of that name, with the sections of each limit |
//! | `check_joint_windows` | the file of that name, with the sections of `fixed_window.lua` for each member |
//!
//! A line `-- @include NAME` is replaced by a file, for pieces that several scripts have in common.
//!
//! The files are part of the binary, so a process never reads them at run time. Local variables of one file are visible
//! in the files behind it: the order matters, and a Lua chunk has at most 200 of them.

mod assemble;
mod functions;
mod sources;

use std::{collections::HashMap, fmt::Write as _, sync::RwLock};

use crate::store::redis::script::functions::{count_of, function, prefix, settle_functions};
use crate::store::redis::script::sources::{
    CHANGES, CHECK, CHECK_JOINT_WINDOWS, CHECK_UNROLLED, FRAME, PRELUDE, RESET, REST_OF, SETTLE,
    STEP, file,
};
use crate::store::redis::wire::CODES;
use crate::{
    algorithm::Algorithm,
    policy::{EffectiveLimit, LimitGroup, MAX_LIMITS},
    sync,
};

/// The lines that files replace. They are comments, so each file is valid Lua by itself.
const INCLUDES: [(&str, &str); 2] = [
    ("-- @include frame", FRAME),
    ("-- @include rest_of", REST_OF),
];

/// A script and its SHA-1.
///
/// - Policies with the same set of algorithms share one script, whatever their numbers.
/// - A script is assembled when it is first used, and kept for the life of the process.
/// - The text depends on nothing else, so all instances of a release compute the same hash and share the script in the
///   cache of the server. SCRIPT FLUSH and a restart empty that cache; the next call gets NOSCRIPT and sends the text.
/// - Comments and empty lines are left out.
#[derive(Debug)]
pub(super) struct Script {
    /// The source for EVAL, without comments.
    pub(super) text: String,
    /// The name of the script in EVALSHA: 40 hexadecimal digits.
    pub(super) hash: String,
}

/// The identity of a script: everything that its text depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ScriptId {
    /// One hit, or several under several policies.
    Check(AlgorithmSet),
    /// One hit or several under the same limits, by the codes of their algorithms in the order of the policy.
    CheckUnrolled([u8; MAX_LIMITS]),
    /// This many hits that must all fit, under one fixed window each.
    CheckJointWindows(usize),
    /// A change of a charge, under one limit or more.
    Settle(AlgorithmSet),
    /// A reset, under any limits.
    Reset,
}

/// A set of algorithms: bit `code - 1` for each. The order and the number of the limits make no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AlgorithmSet(u8);

/// The scripts that were used so far, each of a few kilobytes. There are at most 2 * 2^7 + 9, and one unrolled script
/// for each order of algorithms that policies of this process have.
///
/// A hit takes the lock for reading, for one lookup. The first use of a script takes it for writing and assembles the
/// script under it, so that each is assembled and leaked once.
static SCRIPTS: RwLock<Option<HashMap<ScriptId, &'static Script>>> = RwLock::new(None);

impl Script {
    /// The script that decides hits on the limits of all `groups`.
    pub(super) fn check<'a>(groups: impl Iterator<Item = &'a [LimitGroup]>) -> &'static Script {
        let bits = groups.fold(0, |bits, groups| bits | AlgorithmSet::of(groups).0);
        ScriptId::Check(AlgorithmSet(bits)).script()
    }

    /// The fast script that decides hits on the limits of one key. It leaves unusual values to [`Script::check`].
    ///
    /// Its text depends on the order of the algorithms, so there are as many as policies that differ in it.
    pub(super) fn check_unrolled(limits: &[EffectiveLimit]) -> &'static Script {
        let mut codes = [0; MAX_LIMITS];
        for (code, effective) in codes.iter_mut().zip(limits) {
            *code = match effective.limit.algorithm() {
                // The step is that of a token bucket, and the message has the code.
                Algorithm::LeakyBucket => Algorithm::TokenBucket.code(),
                algorithm => algorithm.code(),
            };
        }
        ScriptId::CheckUnrolled(codes).script()
    }

    /// The fast script that decides a joint hit on fixed windows. It leaves unusual values to [`Script::check`].
    pub(super) fn check_joint_windows(members: usize) -> &'static Script {
        ScriptId::CheckJointWindows(members).script()
    }

    /// The script that changes a charge under the limits of `groups`. A single limit has no script of its own.
    pub(super) fn settle(groups: &[LimitGroup]) -> &'static Script {
        ScriptId::Settle(AlgorithmSet::of(groups)).script()
    }

    /// The script that clears what keys have spent, under any limits.
    pub(super) fn reset() -> &'static Script {
        ScriptId::Reset.script()
    }
}

impl ScriptId {
    /// The script, assembled if this is its first use.
    fn script(self) -> &'static Script {
        let known = sync::read(&SCRIPTS);
        if let Some(script) = known.as_ref().and_then(|known| known.get(&self)) {
            return script;
        }
        // Waiting for the write lock with the read lock in hand would deadlock. Another thread may assemble the script
        // in between, so the entry is looked up again.
        drop(known);
        let mut known = sync::write(&SCRIPTS);
        let known = known.get_or_insert_default();
        known
            .entry(self)
            .or_insert_with(|| Box::leak(Box::new(self.assemble())))
    }

    /// Concatenates the parts, replaces includes and codes, and computes the SHA-1.
    fn assemble(self) -> Script {
        let text = match self {
            ScriptId::Check(set) => {
                let head = [PRELUDE, &set.functions(&["functions"])].concat();
                let row = |algorithm| {
                    let mut row = row(
                        algorithm,
                        &[Some("roll"), Some("state"), count_of(algorithm)],
                    );
                    row.push(format!("'<d{}'", numbers(algorithm)));
                    row
                };
                [&head, &set.table(row), CHECK].concat()
            }
            ScriptId::CheckUnrolled(codes) => {
                let of_code = |code: &u8| Algorithm::ALL.into_iter().find(|it| it.code() == *code);
                let files: Vec<&str> = codes.iter().filter_map(of_code).map(file).collect();
                assemble::unroll(&with_includes(CHECK_UNROLLED), &files)
            }
            ScriptId::CheckJointWindows(members) => {
                let files = vec![file(Algorithm::FixedWindow); members];
                assemble::unroll(CHECK_JOINT_WINDOWS, &files)
            }
            ScriptId::Settle(set) => {
                let functions = set.functions(&["functions", "settle"]);
                let names = |algorithm| {
                    let names = settle_functions(algorithm);
                    names.map(|name| function(algorithm, name)).to_vec()
                };
                [PRELUDE, CHANGES, &functions, &set.table(names), SETTLE].concat()
            }
            ScriptId::Reset => [PRELUDE, CHANGES, RESET].concat(),
        };
        // In this order: an include is a comment, and comments name codes.
        let text = with_codes(&without_comments(&with_includes(&text)));
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Script { text, hash }
    }
}

impl AlgorithmSet {
    /// The algorithms of all limits of `groups`.
    fn of(groups: &[LimitGroup]) -> AlgorithmSet {
        let limits = groups.iter().flat_map(|group| &group.limits);
        let bits = limits.map(|effective| AlgorithmSet::bit(effective.limit.algorithm()));
        AlgorithmSet(bits.fold(0, |set, bit| set | bit))
    }

    /// The bit of an algorithm in a set of algorithms.
    const fn bit(algorithm: Algorithm) -> u8 {
        1 << (algorithm.code() - 1)
    }

    /// The algorithms in the order of [`Algorithm::ALL`], so that equal sets give equal scripts.
    fn algorithms(self) -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL
            .into_iter()
            .filter(move |&algorithm| self.0 & AlgorithmSet::bit(algorithm) != 0)
    }

    /// The functions of all algorithms, each once: the step, and those of `sections`.
    fn functions(self, sections: &[&str]) -> String {
        let mut known = Vec::new();
        let mut text = String::new();
        for algorithm in self.algorithms() {
            let (prefix, file) = (prefix(algorithm), file(algorithm));
            if known.contains(&prefix) {
                continue;
            }
            known.push(prefix);
            text.push_str(&assemble::step(STEP, prefix, file));
            for name in sections {
                text.push_str(&assemble::section(file, name));
            }
        }
        text
    }

    /// A table that has the `row` of each algorithm by its code.
    ///
    /// ```lua
    /// local algorithms = {
    ///   [1] = { token_bucket_roll, token_bucket_state, nil, '<ddd' },
    ///   [3] = { fixed_window_roll, fixed_window_state, nil, '<dd' },
    /// }
    /// ```
    fn table(self, row: impl Fn(Algorithm) -> Vec<String>) -> String {
        let mut table = "local algorithms = {\n".to_owned();
        for algorithm in self.algorithms() {
            let (code, row) = (algorithm.code(), row(algorithm).join(", "));
            writeln!(table, "  [{code}] = {{ {row} }},")
                .expect("a string takes all that is written");
        }
        table.push_str("}\n");
        table
    }
}

/// The row of an algorithm in the scripts that decide hits: these functions, and the format of its numbers.
fn row(algorithm: Algorithm, names: &[Option<&str>]) -> Vec<String> {
    let functions = names.iter().map(|name| function(algorithm, *name));
    let format = format!("'<{}'", numbers(algorithm));
    functions.chain([format]).collect()
}

/// How many numbers a reply has for a limit: `at`, and those that `lua/README.md` lists for the algorithm.
///
/// Rust checks the length of a reply by it, and Lua packs by it, so the two cannot differ.
pub(super) const fn wire_len(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::FixedWindow => 2,
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::SlidingWindowCounter => 3,
        Algorithm::SlidingWindowLog | Algorithm::Concurrency | Algorithm::PenaltyBox => 4,
    }
}

/// The format of these numbers for `struct.pack`: a `d` for each double.
fn numbers(algorithm: Algorithm) -> String {
    "d".repeat(wire_len(algorithm))
}

/// The text with files in place of the lines that include them.
fn with_includes(text: &str) -> String {
    let include = |text: String, (line, file): (&str, &str)| text.replace(line, file);
    INCLUDES.into_iter().fold(text.to_owned(), include)
}

/// The script without comments and empty lines.
///
/// It removes lines that begin with `--`. A comment behind code stays, and a comment of several lines (`--[[`) would
/// break the script, so the files have neither.
fn without_comments(text: &str) -> String {
    let is_code = |line: &&str| !line.is_empty() && !line.trim_start().starts_with("--");
    text.lines()
        .filter(is_code)
        .fold(String::new(), |script, line| script + line + "\n")
}

/// The script with the value of each code in place of its name. Whole words are replaced, also inside of strings.
fn with_codes(text: &str) -> String {
    let mut script = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_uppercase()) {
        let (before, from_word) = rest.split_at(start);
        let is_inside_word = before.ends_with(is_word_char);
        let end = from_word.find(|c| !is_word_char(c));
        let (word, after) = from_word.split_at(end.unwrap_or(from_word.len()));
        let code = CODES.iter().find(|(name, _)| *name == word);
        script.push_str(before);
        match code {
            Some((_, code)) if !is_inside_word => script.push_str(&code.to_string()),
            _ => script.push_str(word),
        }
        rest = after;
    }
    script.push_str(rest);
    script
}

/// Whether `c` can be part of an identifier.
fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    fn check(groups: &[LimitGroup]) -> &'static Script {
        Script::check(std::iter::once(groups))
    }

    #[test]
    fn policies_of_the_same_algorithms_share_a_script() {
        let one = Policy::parse("a", "1/s; fixed_window 2/s").unwrap();
        let two = Policy::parse("b", "fixed_window 5/h; 9/min; 10/d").unwrap();
        let three = Policy::parse("c", "fixed_window 5/h").unwrap();

        assert_eq!(check(one.groups()).hash, check(two.groups()).hash);
        assert_ne!(check(one.groups()).hash, check(three.groups()).hash);
    }

    #[test]
    fn each_function_is_there_once() {
        let both = Policy::parse("a", "1/s; leaky_bucket 2/s").unwrap();

        let text = &check(both.groups()).text;

        assert_eq!(text.matches("function token_bucket_roll").count(), 1);
        assert!(!text.contains("fixed_window"));
    }

    #[test]
    fn codes_stand_in_a_script_as_numbers() {
        let text =
            with_codes("return REPLY_FALLBACK, REPLY_FALLBACK_X, A_REPLY_DENIED, 'REPLY_ALLOWED'");

        assert_eq!(text, "return 255, REPLY_FALLBACK_X, A_REPLY_DENIED, '1'");
    }

    #[test]
    fn no_script_has_a_name_left_that_the_assembler_replaces() {
        let policy = "1/s; leaky_bucket 2/s; fixed_window 3/s; sliding_window_log 4/s; \
                      sliding_window_counter 5/s; concurrency 6 lease 1s; penalty_box 2/s for 1s";
        let policy = Policy::parse("all", policy).unwrap();
        let groups = policy.groups();
        let scripts = [
            check(groups),
            Script::settle(groups),
            Script::reset(),
            unrolled("1/s; leaky_bucket 2/s; fixed_window 3/s; sliding_window_counter 5/s"),
            unrolled("sliding_window_log 4/s; 1/s"),
        ];

        for script in scripts {
            let names =
                words(&script.text).filter(|word| CODES.iter().any(|(name, _)| name == word));
            assert_eq!(names.count(), 0, "{}", script.text);
        }
    }

    /// The identifiers and keywords of a text.
    fn words(text: &str) -> impl Iterator<Item = &str> {
        text.split(|c: char| !is_word_char(c))
            .filter(|word| !word.is_empty())
    }

    fn unrolled(limits: &str) -> &'static Script {
        let policy = Policy::parse("a", limits).unwrap();
        Script::check_unrolled(&policy.groups()[0].limits)
    }

    #[test]
    fn unrolled_scripts_have_the_parts_of_each_limit_in_order() {
        let two = &unrolled("1/s; fixed_window 3/s").text;

        assert!(
            two.contains("#value == 64 then"),
            "8 + 4 * 8 + 3 * 8 bytes: {two}"
        );
        assert!(
            two.contains("unpack('<dddddddddddddd', argument)"),
            "2 + 2 * 6 numbers: {two}"
        );
        assert!(
            two.contains("at_1, debt_1, refunded_1, at_2, count_2)"),
            "{two}"
        );
        assert!(
            !two.contains("_N") && !two.contains('@') && !two.contains("ARGUMENTS"),
            "{two}"
        );
        assert_eq!(
            unrolled("leaky_bucket 1/s; fixed_window 9/h").hash,
            unrolled("1/s; fixed_window 3/s").hash
        );
        assert_ne!(
            unrolled("fixed_window 3/s; 1/s").hash,
            unrolled("1/s; fixed_window 3/s").hash
        );
    }

    #[test]
    fn a_log_has_no_value_of_a_fixed_length() {
        let log = &unrolled("sliding_window_log 4/s; 1/s").text;

        assert!(!log.contains("#value == "), "{log}");
        assert!(
            log.contains(".. stamps_1 .. added_1 .. (refunded_2 > 0"),
            "{log}"
        );
    }
}
