//! The toolchain's own checks.

use std::env;

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
        "mend the warnings (`rustup component add clippy` when it is missing)",
    )
}

pub(super) fn document(workspace: &Workspace) -> Result<(), Failure> {
    rustdoc_links::remove_pages(workspace)?;
    let flags = env::var("RUSTDOCFLAGS").unwrap_or_default();
    let features = workspace.features();
    run(
        cargo(&["doc", "--no-deps", "--workspace", "--features", &features])
            .env("RUSTDOCFLAGS", format!("{flags} -D warnings").trim_start()),
        "mend the links and the other warnings of rustdoc",
    )?;
    rustdoc_links::check(workspace)
}
