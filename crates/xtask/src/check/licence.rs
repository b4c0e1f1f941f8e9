//! The licences of all we build with.

use crate::{
    check::spdx,
    failure::Failure,
    workspace::{Package, Workspace},
};

const ALLOWED: [&str; 16] = [
    "0BSD",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
    "bzip2-1.0.6",
];

const ADVICE: &str = "\
    use another crate, \
    or give a reason under [workspace.metadata.xtask.licences] in Cargo.toml";

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let exceptions = workspace.exceptions().licences;
    let mut problems = Vec::new();
    for package in &workspace.packages {
        if !exceptions.contains_key(&package.name) {
            problems.extend(problem(package));
        }
    }
    for name in exceptions.keys() {
        let mut named = workspace
            .packages
            .iter()
            .filter(|package| package.name == *name);
        if named.all(|package| problem(package).is_none()) {
            problems.push(format!("{name} needs no exception"));
        }
    }
    Failure::unless_none(problems, ADVICE)
}

fn problem(package: &Package) -> Option<String> {
    let Package { name, version, .. } = package;
    let Some(licence) = &package.license else {
        return Some(format!("{name} {version} names no licence"));
    };
    match spdx::is_met(licence, &ALLOWED) {
        Ok(true) => None,
        Ok(false) => Some(format!("{name} {version} is under {licence}")),
        Err(invalid) => Some(format!("{name} {version} is under `{licence}`: {invalid}")),
    }
}
