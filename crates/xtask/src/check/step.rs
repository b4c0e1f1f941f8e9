//! The steps of `cargo xtask check`, one after the other.

use crate::{
    check::{duplicate, layering, licence, lua, package, rust, tree},
    failure::Failure,
    workspace::Workspace,
};

struct Step {
    name: &'static str,
    purpose: &'static str,
    check: fn(&Workspace) -> Result<(), Failure>,
}

const STEPS: [Step; 9] = [
    step("format", "rustfmt changes nothing", rust::format),
    step(
        "tree",
        "files are where and how they should be",
        tree::check,
    ),
    step(
        "layering",
        "imports follow docs/architecture.md",
        layering::check,
    ),
    step("lua", "luacheck passes", lua::check),
    step("licences", "every dependency is permissive", licence::check),
    step("duplicates", "no dependency ships twice", duplicate::check),
    step("clippy", "no warnings", rust::clippy),
    step("rustdoc", "no warnings, no broken links", rust::document),
    step("package", "published crates are complete", package::check),
];

const fn step(
    name: &'static str,
    purpose: &'static str,
    check: fn(&Workspace) -> Result<(), Failure>,
) -> Step {
    Step {
        name,
        purpose,
        check,
    }
}

/// What `cargo xtask check --help` answers.
pub(crate) fn help() -> String {
    let head = "\
Run every check that needs no server, or the named ones.

Usage: cargo xtask check [STEP...]

Steps:";
    STEPS.iter().fold(head.to_owned(), |text, step| {
        format!("{text}\n  {:<11} {}", step.name, step.purpose)
    })
}

/// Runs all steps, or those that are named, and fails when one has failed.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    let is_step = |name: &&String| STEPS.iter().any(|step| step.name == **name);
    if let Some(unknown) = names.iter().find(|name| !is_step(name)) {
        let problem = format!("there is no step `{unknown}`");
        return Err(Failure::new(problem, "see `cargo xtask check --help`"));
    }

    let workspace = Workspace::resolved()?;
    let mut failed = Vec::new();
    for step in &STEPS {
        if !names.is_empty() && !names.iter().any(|name| name == step.name) {
            continue;
        }
        println!("==> {}: {}", step.name, step.purpose);
        if let Err(failure) = (step.check)(&workspace) {
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
