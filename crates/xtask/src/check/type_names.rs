//! A type name is unique in its crate.

use std::{collections::BTreeMap, path::Path};

use crate::{
    check::{
        exceptions::{Exceptions, Findings},
        rust_file::{self, RustFile},
        token::tokens,
    },
    failure::Failure,
    workspace::Workspace,
};

const LIST: &str = "crates/xtask/exceptions/type_names.txt";
const ADVICE: &str = "name each type after what it holds, as in `BucketState` and `LogState`";
const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    Exceptions::check(&workspace.root, LIST, &find(&workspace.root)?, ADVICE)
}

pub(super) fn write(workspace: &Workspace) -> Result<(), Failure> {
    Exceptions::write(&workspace.root, LIST, &find(&workspace.root)?)
}

fn find(root: &Path) -> Result<Findings, Failure> {
    Ok(repeated(&rust_file::load(root)?))
}

fn repeated(files: &[RustFile]) -> Findings {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        for (name, line) in definitions(&file.code) {
            let key = format!("{} {name}", file.crate_name);
            let place = format!("{}:{line}", file.path);
            places.entry(key).or_default().push(place);
        }
    }
    places.retain(|_, places| places.len() > 1);
    let mut findings = Findings::new();
    for (key, places) in places {
        let finding = findings.entry(key).or_default();
        for place in places {
            finding.push(place);
        }
    }
    findings
}

/// Names of the types that a file defines, with their lines. Associated types are left out.
fn definitions(code: &str) -> Vec<(String, usize)> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    // For each open brace, whether it belongs to an `impl` or a `trait`.
    let mut braces = Vec::new();
    let mut opens_impl = false;
    for (at, token) in tokens.iter().enumerate() {
        let is_inside_impl = braces.last() == Some(&true);
        match token.text {
            "impl" if at == 0 || starts_item(tokens[at - 1].text) => opens_impl = true,
            "{" => braces.push(std::mem::take(&mut opens_impl)),
            "}" => drop(braces.pop()),
            keyword if KEYWORDS.contains(&keyword) => {
                let Some([name, next]) = tokens.get(at + 1..at + 3) else {
                    continue;
                };
                let is_associated = keyword == "type" && is_inside_impl;
                // `union` and `type` are words that may stand elsewhere.
                let defines = ["{", "(", "<", ";", ":", "=", "where"].contains(&next.text);
                let is_type = name.text.starts_with(char::is_uppercase);
                if defines && is_type && !is_associated {
                    found.push((name.text.to_owned(), name.line));
                }
                opens_impl |= keyword == "trait";
            }
            _ => {}
        }
    }
    found
}

fn starts_item(before: &str) -> bool {
    ["}", ";", "]", "{", "unsafe"].contains(&before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_two_modules_define_is_found() {
        let files = [
            RustFile::new("crates/a/src/b.rs", "struct State;\nenum Other { A }"),
            RustFile::new("crates/a/src/c.rs", "pub(crate) type State<T> = Vec<T>;"),
            RustFile::new("crates/d/src/lib.rs", "struct State { x: u8 }"),
        ];

        let findings = repeated(&files);

        assert_eq!(findings.keys().collect::<Vec<_>>(), ["a State"]);
        assert_eq!(
            findings["a State"].details,
            ["crates/a/src/b.rs:1", "crates/a/src/c.rs:1"]
        );
    }

    #[test]
    fn associated_types_and_tests_are_left_out() {
        let code = "impl A for B { type State = u8; }\ntrait C { type State; }\nstruct State;";
        let tests = "#[cfg(test)]\nmod tests {\n struct State;\n}";
        let files = [
            RustFile::new("crates/a/src/b.rs", code),
            RustFile::new("crates/a/src/c.rs", tests),
        ];

        assert!(repeated(&files).is_empty());
    }
}
