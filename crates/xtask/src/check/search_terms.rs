//! Terms that users type into the search of rustdoc: each leads to an item, by its name or by an alias.

use std::collections::BTreeSet;

use crate::{
    check::{
        rust_file::{self, RustFile},
        token::tokens,
    },
    failure::Failure,
    workspace::Workspace,
};

const ADVICE: &str =
    "put `#[doc(alias = \"...\")]` on the item that a user looks for under that term";

/// Words of other limiters, of RFCs and of questions.
const TERMS: [&str; 42] = [
    "429",
    "PeerIpKeyExtractor",
    "RateLimiter",
    "Retry-After",
    "SmartIpKeyExtractor",
    "Too Many Requests",
    "X-Forwarded-For",
    "X-RateLimit-Remaining",
    "actix-governor",
    "allowlist",
    "ban",
    "blacklist",
    "block",
    "burst",
    "cidr",
    "cluster",
    "concurrency",
    "cooldown",
    "cost",
    "denylist",
    "dry run",
    "fail closed",
    "fail open",
    "fail_closed",
    "fail_open",
    "fake clock",
    "gcra",
    "governor",
    "in flight",
    "mock",
    "plan",
    "quota",
    "real ip",
    "refund",
    "retry_after",
    "semaphore",
    "sentinel",
    "shadow",
    "throttle",
    "tower_governor",
    "wait",
    "whitelist",
];

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let files = rust_file::load(&workspace.root)?;
    let is_published =
        |file: &&RustFile| workspace.published().any(|own| own.name == file.crate_name);
    let known: BTreeSet<String> = files.iter().filter(is_published).flat_map(found).collect();
    Failure::unless_none(problems(&TERMS, &known), ADVICE)
}

fn problems(terms: &[&str], known: &BTreeSet<String>) -> Vec<String> {
    let is_unknown = |term: &&&str| !known.contains(&term.to_lowercase());
    let unknown = terms.iter().filter(is_unknown);
    unknown
        .map(|term| format!("a search for `{term}` finds nothing"))
        .collect()
}

/// The aliases and the names of public items of a file, in lower case.
fn found(file: &RustFile) -> Vec<String> {
    let mut found = Vec::new();
    let attributes = file.text.lines().map(str::trim_start);
    for attribute in attributes.filter(|line| line.starts_with("#[doc(alias")) {
        found.extend(
            attribute
                .split('"')
                .skip(1)
                .step_by(2)
                .map(str::to_lowercase),
        );
    }
    let tokens = tokens(&file.code);
    for at in 0..tokens.len() {
        let rest = tokens[at + 1..].iter().map(|token| token.text);
        let mut rest = rest.skip_while(|text| ["const", "async"].contains(text));
        let is_item = tokens[at].text == "pub"
            && rest.next().is_some_and(|kind| {
                ["enum", "fn", "mod", "struct", "trait", "type"].contains(&kind)
            });
        if is_item {
            found.extend(rest.next().map(str::to_lowercase));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_and_public_names_are_found() {
        let text = "/// A.\n#[doc(alias = \"Retry-After\")]\n    #[doc(alias(\"a b\", \"c\"))]\n\
            pub const fn retry_after() {}\nfn hidden() {}\npub(crate) fn internal() {}\npub struct Key;";
        let file = RustFile::new("crates/a/src/lib.rs", text);

        assert_eq!(
            found(&file),
            ["retry-after", "a b", "c", "retry_after", "key"]
        );
    }

    #[test]
    fn a_term_without_an_item_is_a_problem() {
        let known = BTreeSet::from(["gcra".to_owned()]);

        assert_eq!(
            problems(&["GCRA", "429"], &known),
            ["a search for `429` finds nothing"]
        );
    }
}
