//! The toolchain's own checks.

use std::env;

use crate::{
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

pub(super) fn clippy(_: &Workspace) -> Result<(), Failure> {
    let line = "clippy --workspace --all-targets --all-features -- -D warnings";
    run(
        &mut cargo(&line.split(' ').collect::<Vec<_>>()),
        "mend the warnings (`rustup component add clippy` when it is missing)",
    )
}

pub(super) fn document(_: &Workspace) -> Result<(), Failure> {
    let flags = env::var("RUSTDOCFLAGS").unwrap_or_default();
    run(
        cargo(&["doc", "--no-deps", "--workspace", "--all-features"])
            .env("RUSTDOCFLAGS", format!("{flags} -D warnings").trim_start()),
        "mend the links and the other warnings of rustdoc",
    )
}
