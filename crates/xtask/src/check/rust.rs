//! The toolchain's own checks.

use std::{env, iter};

use crate::{
    check::rustdoc_links,
    command::{cargo, run},
    failure::Failure,
    workspace::Workspace,
};

pub(super) fn format(_: &Workspace) -> Result<(), Failure> {
    run(
        &mut cargo(&["fmt", "--all", "--check"]),
        "run `cargo fmt --all` (`rustup component add rustfmt` when it is missing)",
    )
}

pub(super) fn clippy(workspace: &Workspace) -> Result<(), Failure> {
    let features = workspace.features();
    let line = format!("clippy --workspace --all-targets --features {features} -- -D warnings");
    run(
        &mut cargo(&line.split(' ').collect::<Vec<_>>()),
        "fix the warnings (`rustup component add clippy` when it is missing)",
    )
}

/// Checks each published crate without default features, and with each of them alone: other features hide an import that
/// is missing.
pub(super) fn default_features(workspace: &Workspace) -> Result<(), Failure> {
    for package in workspace.published() {
        let defaults = package.features.get("default").into_iter().flatten();
        for feature in iter::once("").chain(defaults.map(String::as_str)) {
            let mut clippy = cargo(&["clippy", "-q", "-p", &package.name]);
            clippy.args(["--no-default-features", "--features", feature]);
            // Functions that need a feature are stubs without it, whose form clippy would change.
            clippy.args("-- -D warnings -A clippy::all -A clippy::pedantic".split(' '));
            run(&mut clippy, "fix the warnings")?;
        }
    }
    Ok(())
}

pub(super) fn document(workspace: &Workspace) -> Result<(), Failure> {
    rustdoc_links::remove_pages(workspace)?;
    let flags = env::var("RUSTDOCFLAGS").unwrap_or_default();
    let features = workspace.features();
    run(
        cargo(&["doc", "--no-deps", "--workspace", "--features", &features])
            .env("RUSTDOCFLAGS", format!("{flags} -D warnings").trim_start()),
        "fix the links and the other warnings of rustdoc",
    )?;
    rustdoc_links::check(workspace)
}
