//! The names at the root of each public crate, against a committed list.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{
    check::{
        path::{Visibility, use_items, visibility_before},
        rust_file::{self, RustFile},
        token::tokens,
        tree,
    },
    failure::Failure,
    workspace::Workspace,
};

const LIST: &str = "crates/xtask/exceptions/root_names.txt";
const ADVICE: &str = "\
    keep the root small; a name that belongs there is added to the list by `cargo xtask check --write`";
const HEAD: &str =
    "# Public names at the root of each crate, written by `cargo xtask check --write`.\n";
const CRATES: [&str; 5] = [
    "ratelimit-core",
    "ratelimit-http",
    "ratelimit-tower",
    "ratelimit-axum",
    "ratelimit-actix",
];
const KEYWORDS: [&str; 8] = [
    "mod", "fn", "struct", "enum", "trait", "type", "static", "union",
];

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let list = tree::read(&workspace.root.join(LIST))?;
    let listed = list.lines().filter(|line| !line.starts_with('#'));
    let listed = listed.map(str::to_owned).collect();
    Failure::unless_none(problems(&find(&workspace.root)?, &listed), ADVICE)
}

pub(super) fn write(workspace: &Workspace) -> Result<(), Failure> {
    let names = find(&workspace.root)?;
    let text = names
        .iter()
        .fold(HEAD.to_owned(), |text, name| format!("{text}{name}\n"));
    fs::write(workspace.root.join(LIST), text)
        .map_err(|error| Failure::new(format!("{LIST} cannot be written: {error}"), ADVICE))
}

fn find(root: &Path) -> Result<BTreeSet<String>, Failure> {
    let files = rust_file::load(root)?;
    let public = files
        .iter()
        .filter(|file| CRATES.contains(&file.crate_name.as_str()));
    Ok(public.flat_map(names).collect())
}

fn problems(found: &BTreeSet<String>, listed: &BTreeSet<String>) -> Vec<String> {
    let new = found.difference(listed);
    let new = new.map(|name| format!("{name} is public and not in {LIST}"));
    let gone = listed.difference(found);
    let gone = gone.map(|name| format!("{name} is in {LIST} and not public"));
    new.chain(gone).collect()
}

/// The names that a file adds to the root of its crate: all of `lib.rs`, else exported macros.
fn names(file: &RustFile) -> Vec<String> {
    let tokens = tokens(&file.code);
    let mut names: Vec<String> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.text == "macro_export"
            && let Some(macro_) = tokens[at..].iter().position(|t| t.text == "macro_rules")
            && let Some(name) = tokens.get(at + macro_ + 2)
        {
            names.push(format!("{}!", name.text));
        }
    }
    if file.module.is_empty() && file.path.ends_with("lib.rs") {
        let public = use_items(&tokens)
            .into_iter()
            .filter(|item| item.visibility == Visibility::Public);
        for path in public.flat_map(|item| item.paths) {
            names.push(path.name().to_owned());
        }
        names.extend(definitions(&tokens));
    }
    names
        .into_iter()
        .map(|name| format!("{}::{name}", file.crate_name.replace('-', "_")))
        .collect()
}

/// The public items that a file defines outside all braces.
fn definitions(tokens: &[crate::check::token::Token<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            "pub" if depth == 0 && visibility_before(&tokens[..=at]) == Visibility::Public => {
                let words: Vec<&str> = tokens[at + 1..].iter().take(5).map(|t| t.text).collect();
                let keyword = words.iter().position(|word| KEYWORDS.contains(word));
                let constant =
                    (words.first() == Some(&"const") && words.get(1) != Some(&"fn")).then_some(0);
                let is_item = !["(", "use"].contains(words.first().unwrap_or(&"("));
                if let Some(keyword) = constant.or(keyword)
                    && is_item
                    && let Some(name) = words.get(keyword + 1)
                {
                    found.push((*name).to_owned());
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_public_form_is_a_name() {
        let code = "pub use a::{B, c::D as E};\npub mod f { pub fn no() {} }\npub const fn g() {}\n\
            pub const H: u8 = 1;\npub(crate) use i::J;\nmod k;\npub(crate) fn l() {}";

        let found = names(&RustFile::new("crates/ratelimit-core/src/lib.rs", code));

        let expected = ["B", "E", "f", "g", "H"];
        assert_eq!(
            found,
            expected.map(|name| format!("ratelimit_core::{name}"))
        );
    }

    #[test]
    fn exported_macros_are_names_wherever_they_are() {
        let code = "#[macro_export]\nmacro_rules! limits { () => {} }\npub struct No;";

        let found = names(&RustFile::new("crates/a/src/b.rs", code));

        assert_eq!(found, ["a::limits!"]);
    }

    #[test]
    fn names_and_list_must_be_equal() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();

        assert_eq!(problems(&set(&["a::B"]), &set(&["a::B"])), [""; 0]);
        assert_eq!(problems(&set(&["a::B"]), &set(&["a::C"])).len(), 2);
    }
}
