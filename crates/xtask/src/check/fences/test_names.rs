//! The tests of a package, as `cargo nextest` names them, read from its source.

use std::path::Path;

use crate::{check::files, failure::Failure};

/// A test, and the binary that holds it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TestName {
    /// Name of the test target; empty for unit tests.
    pub(super) binary: String,
    /// Path of modules and the name of the function.
    pub(super) path: String,
}

pub(super) fn of(package: &Path) -> Result<Vec<TestName>, Failure> {
    let mut names = Vec::new();
    for folder in ["src", "tests"] {
        let folder = package.join(folder);
        if !folder.is_dir() {
            continue;
        }
        for file in files::files(&folder, "rs")? {
            let path = file.strip_prefix(package).unwrap_or(&file);
            names.extend(in_file(&path.to_string_lossy(), &files::read(&file)?));
        }
    }
    Ok(names)
}

/// The tests of a file below `src` or `tests`.
fn in_file(path: &str, text: &str) -> Vec<TestName> {
    let mut parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let folder = parts.remove(0);
    if parts
        .last()
        .is_some_and(|last| ["mod", "main", "lib"].contains(last))
    {
        parts.pop();
    }
    let binary = match folder {
        "tests" if !parts.is_empty() => parts.remove(0).to_owned(),
        _ => String::new(),
    };
    let mut names = Vec::new();
    // Modules with their indentation, which rustfmt keeps.
    let mut modules: Vec<(usize, &str)> = Vec::new();
    let mut is_test = false;
    for line in text.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if code.is_empty() || code.starts_with("//") {
            continue;
        }
        modules.retain(|(outer, _)| *outer < indent || code.starts_with('}'));
        if code.starts_with("#[") {
            is_test |= code.contains("test]") || code.contains("test(");
            continue;
        }
        if let Some(name) = module_name(code) {
            modules.push((indent, name));
        } else if let Some(name) = function_name(code)
            && is_test
        {
            let inner = modules.iter().map(|(_, name)| *name);
            let path: Vec<&str> = parts.iter().copied().chain(inner).chain([name]).collect();
            names.push(TestName {
                binary: binary.clone(),
                path: path.join("::"),
            });
        }
        is_test = false;
    }
    names
}

fn module_name(code: &str) -> Option<&str> {
    let (before, rest) = code.split_once("mod ")?;
    let is_module = before.is_empty() || before.starts_with("pub");
    rest.strip_suffix(" {").filter(|_| is_module)
}

fn function_name(code: &str) -> Option<&str> {
    let (before, rest) = code.split_once("fn ")?;
    let is_item = before
        .split_whitespace()
        .all(|word| ["async", "const"].contains(&word) || word.starts_with("pub"));
    is_item.then(|| rest.split(['(', '<']).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_named_by_its_file_and_modules() {
        let text = "fn helper() {}\n#[tokio::test]\nasync fn one() {\n    x();\n}\n\
            mod inner {\n    #[test]\n    fn two() {}\n}\n#[test]\n#[expect(unused)]\nfn three() {}\n";

        let paths = |path| {
            let names = in_file(path, text).into_iter();
            names
                .map(|name| (name.binary, name.path))
                .collect::<Vec<_>>()
        };

        let named = |binary: &str, path: &str| (binary.to_owned(), path.to_owned());
        assert_eq!(
            paths("tests/engine/a/b.rs"),
            [
                named("engine", "a::b::one"),
                named("engine", "a::b::inner::two"),
                named("engine", "a::b::three"),
            ]
        );
        assert_eq!(paths("src/lib.rs")[0], named("", "one"));
        assert_eq!(paths("tests/run.rs")[0], named("run", "one"));
        assert_eq!(paths("src/a/mod.rs")[1], named("", "a::inner::two"));
    }
}
