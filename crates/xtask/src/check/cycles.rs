//! Modules of one directory form no import cycle.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    check::{
        exceptions::{Exceptions, Findings},
        path::{RustPath, parse_tree, use_items},
        rust_file::{self, RustFile},
        token::{Token, tokens},
    },
    failure::Failure,
    workspace::Workspace,
};

const LIST: &str = "crates/xtask/exceptions/cycles.txt";
const ADVICE: &str = "\
    move what both modules need into a third one, or hand it over as an argument";

/// A module path inside a crate.
type Module = Vec<String>;

/// For each module, the siblings that it imports, with one place of the import.
type Edges = BTreeMap<Module, BTreeMap<Module, String>>;

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    Exceptions::check(&workspace.root, LIST, &find(&workspace.root)?, ADVICE)
}

pub(super) fn write(workspace: &Workspace) -> Result<(), Failure> {
    Exceptions::write(&workspace.root, LIST, &find(&workspace.root)?)
}

fn find(root: &Path) -> Result<Findings, Failure> {
    let mut crates: BTreeMap<String, Vec<RustFile>> = BTreeMap::new();
    for file in rust_file::load(root)? {
        // A file in `src/bin` is a crate of its own.
        if file.module.first().is_none_or(|name| name != "bin") {
            let files = crates.entry(file.crate_name.clone()).or_default();
            files.push(file);
        }
    }
    let found = crates.values().map(|files| modules_in_cycles(files));
    Ok(found.flatten().collect())
}

/// Each module that imports itself through its siblings, with the imports that lead there.
fn modules_in_cycles(files: &[RustFile]) -> Findings {
    let modules: BTreeSet<Module> = files.iter().map(|file| file.module.clone()).collect();
    let exports = re_exports(files, &modules);
    let mut edges = Edges::new();
    for file in files {
        for path in paths(&file.code) {
            let Some(target) = absolute(&path.segments, &file.module) else {
                continue;
            };
            let target = owner(&target, &modules, &exports);
            if let Some((from, to)) = siblings(&file.module, &target) {
                let place = format!("{}:{} imports {}", file.path, path.line, to.join("::"));
                edges.entry(from).or_default().entry(to).or_insert(place);
            }
        }
    }

    let mut findings = Findings::new();
    for (module, imports) in &edges {
        let closing: Vec<&String> = imports
            .iter()
            .filter(|(import, _)| reaches(&edges, import, module))
            .map(|(_, place)| place)
            .collect();
        if !closing.is_empty() {
            let key = format!("crates/{}/src/{}", files[0].crate_name, module.join("/"));
            let finding = findings.entry(key).or_default();
            finding.count = 1;
            finding.details = closing.into_iter().cloned().collect();
        }
    }
    findings
}

/// The paths of a file that begin with `crate`, `self` or `super`, in `use` items and elsewhere.
fn paths(code: &str) -> Vec<RustPath> {
    let tokens = tokens(code);
    let starts = |at: usize| {
        let is_root = ["crate", "super"].contains(&tokens[at].text);
        let goes_on = tokens.get(at + 1).is_some_and(|next| next.text == "::");
        is_root && goes_on && (at == 0 || tokens[at - 1].text != "::")
    };
    (0..tokens.len())
        .filter(|at| starts(*at))
        .flat_map(|at| parse_tree(&tokens[at..]).0)
        .collect()
}

/// A path from the crate's root. Paths that begin with another crate or a local name have none.
fn absolute(segments: &[String], module: &[String]) -> Option<Module> {
    let mut base = module.to_vec();
    let mut rest = segments;
    match rest.first()?.as_str() {
        "crate" => (base, rest) = (Module::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {}
        _ => return None,
    }
    while rest.first().is_some_and(|segment| segment == "super") {
        base.pop();
        rest = &rest[1..];
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// For each module, the names that it takes from its children.
fn re_exports(files: &[RustFile], modules: &BTreeSet<Module>) -> BTreeMap<Module, Module> {
    let mut exports = BTreeMap::new();
    for file in files {
        let tokens: Vec<Token<'_>> = tokens(&file.code);
        for path in use_items(&tokens).into_iter().flat_map(|item| item.paths) {
            let child = [file.module.as_slice(), &path.segments].concat();
            let Some(target) = absolute(&path.segments, &file.module).or(Some(child)) else {
                continue;
            };
            let is_child = target.len() > file.module.len() + 1
                && target.starts_with(&file.module)
                && modules.contains(&target[..=file.module.len()]);
            if is_child {
                let name = [file.module.as_slice(), &[path.name().to_owned()]].concat();
                exports.insert(name, target);
            }
        }
    }
    exports
}

/// The module that defines the item at the end of a path, seen through re-exports.
fn owner(
    path: &[String],
    modules: &BTreeSet<Module>,
    exports: &BTreeMap<Module, Module>,
) -> Module {
    let mut path = path.to_vec();
    // A chain of re-exports is as long as the tree is deep.
    for _ in 0..8 {
        let known = (0..=path.len()).rev().find(|end| {
            let prefix = &path[..*end];
            modules.contains(prefix)
        });
        let known = known.unwrap_or(0);
        let Some(target) = path.get(..=known).and_then(|name| exports.get(name)) else {
            return path[..known].to_vec();
        };
        path = [target.as_slice(), &path[known + 1..]].concat();
    }
    path
}

/// The children of one directory that two modules belong to, if they are different ones.
fn siblings(from: &[String], to: &[String]) -> Option<(Module, Module)> {
    let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let from = from.get(..=common)?.to_vec();
    let to = to.get(..=common)?.to_vec();
    Some((from, to))
}

fn reaches(edges: &Edges, from: &Module, to: &Module) -> bool {
    let mut open = vec![from];
    let mut seen = BTreeSet::new();
    while let Some(module) = open.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            open.extend(edges.get(module).into_iter().flat_map(BTreeMap::keys));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file =
            |(path, code): &(&str, &str)| RustFile::new(&format!("crates/a/src/{path}"), code);
        let files: Vec<RustFile> = files.iter().map(file).collect();
        modules_in_cycles(&files).into_keys().collect()
    }

    #[test]
    fn a_cycle_of_two_files_is_found() {
        let modules = found(&[
            ("lib.rs", "mod b; mod c; mod d;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "fn f() { super::b::g() }"),
            ("d.rs", "use crate::{b::g, c::C};"),
        ]);

        assert_eq!(modules, ["crates/a/src/b", "crates/a/src/c"]);
    }

    #[test]
    fn a_cycle_through_a_folder_or_a_re_export_is_found() {
        let through_folder = found(&[
            ("b/mod.rs", "mod e;"),
            ("b/e.rs", "use crate::c::C;"),
            ("c.rs", "use crate::b::e::E;"),
        ]);
        let through_re_export = found(&[
            (
                "b/mod.rs",
                "mod e; mod f; pub(crate) use e::E; pub(crate) use self::f::F;",
            ),
            ("b/e.rs", "use super::F;"),
            ("b/f.rs", "use crate::b::E;"),
        ]);

        assert_eq!(through_folder, ["crates/a/src/b", "crates/a/src/c"]);
        assert_eq!(through_re_export, ["crates/a/src/b/e", "crates/a/src/b/f"]);
    }

    #[test]
    fn parents_and_tests_close_no_cycle() {
        let modules = found(&[
            ("b/mod.rs", "mod e; use self::e::E; pub(crate) struct B;"),
            ("b/e.rs", "use super::B;"),
            ("c.rs", "use crate::d::D;"),
            ("d.rs", "#[cfg(test)]\nmod tests {\n use crate::c::C;\n}"),
        ]);

        assert_eq!(modules, [""; 0]);
    }
}
