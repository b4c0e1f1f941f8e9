//! The steps of `cargo xtask check`, one after the other.

use crate::{
    check::{
        copies, cycles, doc_ratio, duplicate, features, fences, globs, layering, licence, links,
        lua, package, pages, root_names, rust, search_terms, tree, type_names, words,
    },
    failure::Failure,
    proto,
    workspace::Workspace,
};

type Check = fn(&Workspace) -> Result<(), Failure>;

struct Step {
    name: &'static str,
    purpose: &'static str,
    check: Check,
    /// Writes the committed list that the step compares with.
    write: Option<Check>,
}

const STEPS: &[Step] = &[
    step("format", "rustfmt changes nothing", rust::format),
    step(
        "tree",
        "files are where and how they should be",
        tree::check,
    ),
    step(
        "layering",
        "imports follow docs/explain/architecture.md",
        layering::check,
    ),
    step(
        "cycles",
        "modules of one directory form no import cycle",
        cycles::check,
    )
    .with_list(cycles::write),
    step(
        "types",
        "a type name is unique in its crate",
        type_names::check,
    )
    .with_list(type_names::write),
    step("globs", "nothing is re-exported by glob", globs::check).with_list(globs::write),
    step(
        "roots",
        "public names at crate roots are the listed ones",
        root_names::check,
    )
    .with_list(root_names::write),
    step(
        "words",
        "pages, comments and names use plain words",
        words::check,
    )
    .with_list(words::write),
    step("docs", "enough doc lines per code line", doc_ratio::check),
    step(
        "search",
        "terms that users search for lead to an item",
        search_terms::check,
    ),
    step(
        "features",
        "docs/reference/features.md agrees with the manifests",
        features::check,
    ),
    step("links", "links of pages lead somewhere", links::check),
    step(
        "fences",
        "code blocks of pages are tested, or say why not",
        fences::check,
    ),
    step(
        "pages",
        "copies of pages in crates are what docs/ has",
        pages::check,
    )
    .with_list(pages::write),
    step(
        "copies",
        "no code is repeated between crates",
        copies::check,
    )
    .with_list(copies::write),
    step(
        "proto",
        "generated code is what the messages give",
        proto::check,
    ),
    step("lua", "luacheck passes", lua::check),
    step("licences", "every dependency is permissive", licence::check),
    step("duplicates", "no dependency ships twice", duplicate::check),
    step("clippy", "no warnings", rust::clippy),
    step(
        "defaults",
        "each default feature compiles alone",
        rust::default_features,
    ),
    step("rustdoc", "no warnings, no broken links", rust::document),
    step("package", "published crates are complete", package::check),
];

const fn step(name: &'static str, purpose: &'static str, check: Check) -> Step {
    Step {
        name,
        purpose,
        check,
        write: None,
    }
}

impl Step {
    const fn with_list(mut self, write: Check) -> Step {
        self.write = Some(write);
        self
    }
}

/// The text of `cargo xtask check --help`.
pub(crate) fn help() -> String {
    let head = "\
Run every check that needs no server, or the named ones.

Usage: cargo xtask check [--write] [STEP...]

Options:
  --write  Write the committed lists in crates/xtask/exceptions, which may only shrink, and the copies of pages in
           crates/*/docs; check nothing

Steps:";
    STEPS.iter().fold(head.to_owned(), |text, step| {
        format!("{text}\n  {:<11} {}", step.name, step.purpose)
    })
}

/// Runs all steps, or those that are named, and fails when one has failed.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    let is_write = |name: &String| name == "--write";
    let writes = names.iter().any(is_write);
    let names: Vec<&String> = names.iter().filter(|name| !is_write(name)).collect();
    let is_step = |name: &&&String| STEPS.iter().any(|step| step.name == ***name);
    if let Some(unknown) = names.iter().find(|name| !is_step(name)) {
        let problem = format!("there is no step `{unknown}`");
        return Err(Failure::new(problem, "see `cargo xtask check --help`"));
    }

    let workspace = Workspace::resolved()?;
    let mut failed = Vec::new();
    for step in STEPS {
        if !names.is_empty() && !names.iter().any(|name| *name == step.name) {
            continue;
        }
        let action = if writes { step.write } else { Some(step.check) };
        let Some(action) = action else {
            continue;
        };
        println!("==> {}: {}", step.name, step.purpose);
        if let Err(failure) = action(&workspace) {
            println!("{failure}");
            failed.push(step.name);
        }
    }
    if failed.is_empty() {
        println!("==> all is well");
        return Ok(());
    }
    let failed = failed.join(" ");
    let advice = format!("mend what is written above, then `cargo xtask check {failed}`");
    Err(Failure::new(format!("failed: {failed}"), advice))
}
