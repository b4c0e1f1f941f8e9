//! Code that two crates repeat.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use crate::{
    check::{
        exceptions::{Exceptions, Finding, Findings},
        path::parse_tree,
        rust_file::{self, RustFile},
        token::{Token, tokens},
    },
    failure::Failure,
    workspace::Workspace,
};

const LIST: &str = "crates/xtask/exceptions/copies.txt";
const ADVICE: &str = "\
    keep one copy in the crate that both depend on, as a function, a generic type or a macro";

/// Runs of more tokens than this are copies.
const MAX_TOKENS: usize = 60;

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    Exceptions::check(&workspace.root, LIST, &find(&workspace.root)?, ADVICE)
}

pub(super) fn write(workspace: &Workspace) -> Result<(), Failure> {
    Exceptions::write(&workspace.root, LIST, &find(&workspace.root)?)
}

fn find(root: &Path) -> Result<Findings, Failure> {
    Ok(copies(&rust_file::load(root)?))
}

/// For each pair of files of two crates, the tokens that both contain in long runs.
///
/// Comments, literals, tests and `use` items are left out; identifiers are compared as they are.
fn copies(files: &[RustFile]) -> Findings {
    let tokens: Vec<Vec<Token<'_>>> = files.iter().map(code_tokens).collect();
    let mut windows: HashMap<u64, Vec<(usize, usize)>> = HashMap::new();
    // For each pair of files, whether a token of the first one is in a run of both.
    let mut runs: BTreeMap<(usize, usize), Vec<bool>> = BTreeMap::new();
    for (file, tokens_of_file) in tokens.iter().enumerate() {
        for (at, hash) in window_hashes(tokens_of_file).into_iter().enumerate() {
            let others = windows.entry(hash).or_default();
            for (other, place) in others.iter().copied() {
                let is_other_crate = files[other].crate_name != files[file].crate_name;
                if is_other_crate && is_equal(&tokens[other][place..], &tokens_of_file[at..]) {
                    let run = runs.entry((other, file));
                    let run = run.or_insert_with(|| vec![false; tokens[other].len()]);
                    run[place..=place + MAX_TOKENS].fill(true);
                }
            }
            others.push((file, at));
        }
    }

    let finding = |((first, second), run): ((usize, usize), Vec<bool>)| {
        let copied: Vec<usize> = (0..run.len()).filter(|at| run[*at]).collect();
        let starts = copied.iter().filter(|at| **at == 0 || !run[**at - 1]);
        let details = starts
            .map(|at| format!("{}:{}", files[first].path, tokens[first][*at].line))
            .collect();
        let key = format!("{} {}", files[first].path, files[second].path);
        let count = copied.len();
        (key, Finding { count, details })
    };
    runs.into_iter().map(finding).collect()
}

fn is_equal(left: &[Token<'_>], right: &[Token<'_>]) -> bool {
    let pairs = left.iter().zip(right).take(MAX_TOKENS + 1);
    pairs.fold(true, |equal, (left, right)| {
        equal && left.text == right.text
    })
}

/// The tokens of a file without its `use` items.
fn code_tokens(file: &RustFile) -> Vec<Token<'_>> {
    let all = tokens(&file.code);
    let mut kept = Vec::with_capacity(all.len());
    let mut at = 0;
    while let Some(token) = all.get(at) {
        at += 1;
        if token.text == "use" {
            at += parse_tree(&all[at..]).1;
        } else {
            kept.push(*token);
        }
    }
    kept
}

/// A rolling hash for each window of `MAX_TOKENS + 1` tokens.
fn window_hashes(tokens: &[Token<'_>]) -> Vec<u64> {
    const BASE: u64 = 0x0100_0000_01b3;
    let width = MAX_TOKENS + 1;
    let hashes: Vec<u64> = tokens.iter().map(|token| token_hash(token.text)).collect();
    let oldest_weight = (1..width).fold(1_u64, |weight, _| weight.wrapping_mul(BASE));
    let mut windows = Vec::with_capacity(tokens.len());
    let mut window = 0_u64;
    for (at, hash) in hashes.iter().enumerate() {
        if at >= width {
            window = window.wrapping_sub(hashes[at - width].wrapping_mul(oldest_weight));
        }
        window = window.wrapping_mul(BASE).wrapping_add(*hash);
        if at + 1 >= width {
            windows.push(window);
        }
    }
    windows
}

/// FNV-1a.
fn token_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many different words as asked for.
    fn words(count: usize) -> String {
        (0..count).fold(String::new(), |text, number| format!("{text}w{number}\n"))
    }

    #[test]
    fn a_run_of_two_crates_is_found() {
        let files = [
            RustFile::new("crates/a/src/b.rs", &format!("x\n{}y", words(70))),
            RustFile::new("crates/c/src/d.rs", &words(80)),
        ];

        let findings = copies(&files);

        let finding = &findings["crates/a/src/b.rs crates/c/src/d.rs"];
        assert_eq!(finding.count, 70);
        assert_eq!(finding.details, ["crates/a/src/b.rs:2"]);
    }

    #[test]
    fn short_runs_imports_and_copies_in_one_crate_are_left_out() {
        let short = words(MAX_TOKENS);
        let imports = format!("use a::{{{}}};", words(70).replace('\n', ","));
        let file = |name: &str, text: &str| RustFile::new(&format!("crates/{name}.rs"), text);

        assert!(copies(&[file("a/src/b", &short), file("c/src/d", &short)]).is_empty());
        assert!(copies(&[file("a/src/b", &imports), file("c/src/d", &imports)]).is_empty());
        let long = words(70);
        assert!(copies(&[file("a/src/b", &long), file("a/src/d", &long)]).is_empty());
    }
}
