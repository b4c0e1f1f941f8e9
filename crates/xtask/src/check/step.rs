//! The steps of `cargo xtask check`, one after the other.

use crate::{
    check::{duplicate, features, fences, licence, links, lua, minimal, package, pages, rust},
    failure::Failure,
    proto,
    workspace::Workspace,
};

type Check = fn(&Workspace) -> Result<(), Failure>;

struct Step {
    name: &'static str,
    purpose: &'static str,
    check: Check,
    /// Writes the committed copies that the step compares with.
    write: Option<Check>,
}

const STEPS: &[Step] = &[
    step("format", "rustfmt changes nothing", rust::format),
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
    .with_copies(pages::write),
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
    step(
        "minimal",
        "a service with the lowest versions of our dependencies compiles",
        minimal::check,
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
    const fn with_copies(mut self, write: Check) -> Step {
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
  --write  Write the copies of pages in crates/*/docs; check nothing

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
        println!("==> OK");
        return Ok(());
    }
    let failed = failed.join(" ");
    let advice = format!("fix the problems above, then `cargo xtask check {failed}`");
    Err(Failure::new(format!("failed: {failed}"), advice))
}
