//! Imports point one way: the table of docs/explain/architecture.md.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::{
    check::{
        imports::{Start, imports},
        source, tree,
    },
    failure::Failure,
    workspace::Workspace,
};

const PAGE: &str = "docs/explain/architecture.md";
const CORE: &str = "crates/ratelimit-core/src";
const ADVICE: &str = "\
    move the code to the module that may import both, \
    or argue for a new line in docs/explain/architecture.md";

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let root = &workspace.root;
    let table = tree::read(&root.join(PAGE)).and_then(|page| {
        Table::parse(&page)
            .map_err(|problem| Failure::new(format!("{PAGE}: {problem}"), "mend the table"))
    })?;

    let mut problems = package_problems(workspace, &table);
    let src = root.join(CORE);
    let modules = modules(&src)?;
    for file in tree::files(&src, "rs")? {
        let path = file.strip_prefix(&src).unwrap_or(&file);
        let code = source::code(&tree::read(&file)?);
        let found = module_problems(path, &code, &modules, &table);
        problems.extend(
            found
                .into_iter()
                .map(|problem| format!("{CORE}/{}: {problem}", path.display())),
        );
    }
    Failure::unless_none(problems, ADVICE)
}

fn package_problems(workspace: &Workspace, table: &Table) -> Vec<String> {
    let mut problems = Vec::new();
    for package in workspace.own() {
        let is_named = table.names(&package.name);
        if !is_named && !package.is_published() {
            continue;
        }
        if !is_named {
            problems.push(format!("package {} is not in the table", package.name));
        }
        for dependency in package
            .dependencies
            .iter()
            .filter(|dependency| dependency.is_internal())
        {
            if !table.allows(&package.name, &dependency.name) {
                problems.push(format!(
                    "package {} must not import {}",
                    package.name, dependency.name
                ));
            }
        }
    }
    problems
}

fn module_problems(
    path: &Path,
    code: &str,
    modules: &BTreeSet<String>,
    table: &Table,
) -> Vec<String> {
    let parts: Vec<String> = path
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .filter(|part| part != "mod")
        .collect();
    let Some(owner) = parts.first().filter(|owner| *owner != "lib") else {
        return Vec::new();
    };
    if !table.names(owner) {
        return vec![format!("module {owner} is not in the table")];
    }

    let mut problems = BTreeSet::new();
    for import in imports(code, parts.len()) {
        let name = &import.name;
        match import.start {
            _ if table.allows(owner, name) => {}
            _ if modules.contains(name) => {
                problems.insert(format!("module {owner} must not import {name}"));
            }
            Start::Crate => {
                problems.insert(format!(
                    "`crate::{name}` hides its module; import it from there"
                ));
            }
            Start::Super => {}
        }
    }
    problems.into_iter().collect()
}

/// The names of the modules below the crate's root.
fn modules(src: &Path) -> Result<BTreeSet<String>, Failure> {
    let unreadable = |error| Failure::new(format!("{CORE} is unreadable: {error}"), ADVICE);
    let mut modules = BTreeSet::new();
    for entry in fs::read_dir(src).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path().with_extension("");
        modules.extend(
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    Ok(modules)
}

/// The allowed imports.
#[derive(Debug, Default)]
struct Table {
    below: BTreeMap<String, BTreeSet<String>>,
}

impl Table {
    /// Reads the block that is fenced as `imports`.
    fn parse(page: &str) -> Result<Table, String> {
        let fence = page
            .split_once("```imports\n")
            .and_then(|(_, rest)| rest.split_once("```"));
        let Some((block, _)) = fence else {
            return Err("there is no block that is fenced as `imports`".to_owned());
        };
        let mut table = Table::default();
        for line in block.lines().filter(|line| !line.trim().is_empty()) {
            table.add(line)?;
        }
        match table.below.keys().find(|name| table.reaches(name, name)) {
            Some(name) => Err(format!("{name} stands below itself")),
            None => Ok(table),
        }
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let mut lower: Option<String> = None;
        for name in line.split("<-") {
            let name = name.trim().trim_end_matches("/*");
            if name.is_empty() || name.contains(char::is_whitespace) {
                return Err(format!("`{line}` is no chain of names"));
            }
            let below = self.below.entry(name.to_owned()).or_default();
            below.extend(lower.replace(name.to_owned()));
        }
        Ok(())
    }

    fn names(&self, name: &str) -> bool {
        self.below.contains_key(name)
    }

    fn allows(&self, importer: &str, target: &str) -> bool {
        importer == target || self.reaches(importer, target)
    }

    fn reaches(&self, from: &str, to: &str) -> bool {
        let mut open = vec![from];
        let mut seen = BTreeSet::new();
        while let Some(name) = open.pop() {
            for lower in self.below.get(name).into_iter().flatten() {
                if lower == to {
                    return true;
                }
                if seen.insert(lower) {
                    open.push(lower);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# A page
```imports
time <- decision <- store/* <- limiter
decision <- fields
client_addr
```
";

    fn problems(path: &str, code: &str) -> Vec<String> {
        let modules = [
            "time",
            "decision",
            "store",
            "limiter",
            "fields",
            "client_addr",
        ];
        let modules = modules.into_iter().map(str::to_owned).collect();
        module_problems(
            Path::new(path),
            code,
            &modules,
            &Table::parse(TABLE).unwrap(),
        )
    }

    #[test]
    fn the_right_imports_all_that_is_left() {
        let table = Table::parse(TABLE).unwrap();

        assert!(table.allows("limiter", "store"));
        assert!(table.allows("limiter", "time"));
        assert!(table.allows("fields", "time"));
        assert!(!table.allows("time", "limiter"));
        assert!(!table.allows("limiter", "fields"));
        assert!(!table.allows("client_addr", "time"));
    }

    #[test]
    fn a_table_that_makes_no_order_is_refused() {
        assert!(Table::parse("no block").is_err());
        assert!(Table::parse("```imports\na <- b\nb <- a\n```").is_err());
        assert!(Table::parse("```imports\na <- b c\n```").is_err());
    }

    #[test]
    fn an_import_upwards_is_found() {
        assert_eq!(
            problems(
                "store/memory.rs",
                "use crate::{limiter::Limiter, time::Clock};"
            ),
            ["module store must not import limiter"]
        );
        assert_eq!(
            problems("time.rs", "use super::decision::Decision;"),
            ["module time must not import decision"]
        );
        assert_eq!(
            problems("store/mod.rs", "mod memory; use crate::time::Clock;"),
            [""; 0]
        );
    }

    #[test]
    fn the_root_hides_no_import() {
        assert_eq!(
            problems("time.rs", "use crate::Limiter;"),
            ["`crate::Limiter` hides its module; import it from there"]
        );
        assert_eq!(
            problems("time.rs", "mod tests { use super::Clock; }"),
            [""; 0]
        );
        assert_eq!(
            problems("lib.rs", "pub use crate::limiter::Limiter;"),
            [""; 0]
        );
        assert_eq!(
            problems("stray.rs", ""),
            ["module stray is not in the table"]
        );
    }
}
