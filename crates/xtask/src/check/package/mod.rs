//! The packages for the registry: their fields, their files, and that each compiles from its tarball alone.

mod fields;
mod files;
mod tarball;

use std::{fs, path::Path, process::Command};

use crate::{
    command::{cargo, output},
    failure::Failure,
    workspace::{Package, Workspace},
};

const ADVICE: &str =
    "see `include`, the links and the fields of [package] in the crate's Cargo.toml";

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let published: Vec<&Package> = workspace.published().collect();
    let mut problems = Vec::new();
    for package in &published {
        problems.extend(fields::problems(package));
        let packed = packed_files(package)?;
        let scripts = files::scripts(&workspace.root, &package.name)?;
        problems.extend(files::problems(&package.name, &packed, &scripts));
    }
    Failure::unless_none(problems, ADVICE)?;

    let mut problems = write_packages(&workspace.root, &published)?;
    for package in &published {
        let path = tarball::path(&workspace.target_directory, package);
        let bytes = fs::metadata(&path).map_or(0, |file| file.len());
        println!("    {}: {} KiB", package.name, bytes.div_ceil(1024));
        problems.extend(files::size_problem(&package.name, bytes));
    }
    Failure::unless_none(problems, ADVICE)?;
    tarball::compile_all(workspace, &published)
}

fn packed_files(package: &Package) -> Result<Vec<String>, Failure> {
    let line = "package --offline --list --allow-dirty -p";
    let line: Vec<&str> = line.split(' ').chain([package.name.as_str()]).collect();
    let list = output(&mut cargo(&line), ADVICE)?;
    let list = String::from_utf8_lossy(&list);
    Ok(list.lines().map(|line| line.replace('\\', "/")).collect())
}

/// Writes a tarball of each package; a warning of cargo is a problem.
///
/// [`Workspace::resolved`] has fetched all that cargo needs, so no warning is about the network.
/// On a clean tree cargo also compares the files with those that git has.
fn write_packages(root: &Path, packages: &[&Package]) -> Result<Vec<String>, Failure> {
    let mut line = vec!["package", "--offline", "--no-verify"];
    if !is_clean(root) {
        line.push("--allow-dirty");
    }
    for package in packages {
        line.extend(["-p", &package.name]);
    }
    let done = cargo(&line)
        .output()
        .map_err(|error| Failure::new(format!("cargo did not start: {error}"), ADVICE))?;
    let text = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() {
        return Err(Failure::new(format!("`cargo package`: {text}"), ADVICE));
    }
    Ok(warnings(&text))
}

fn is_clean(root: &Path) -> bool {
    let mut git = Command::new("git");
    let status = git.current_dir(root).args(["status", "--porcelain"]);
    status
        .output()
        .is_ok_and(|done| done.status.success() && done.stdout.is_empty())
}

/// The repository has no public address yet.
const NO_ADDRESS: &str = "warning: manifest has no documentation, homepage or repository";

/// The warnings of `cargo package`, except that of [`NO_ADDRESS`] and those that say that tests and examples are left out, as
/// they are meant to be.
fn warnings(text: &str) -> Vec<String> {
    let is_meant = |line: &&str| {
        let is_left_out = ["warning: ignoring test `", "warning: ignoring example `"]
            .iter()
            .any(|start| line.starts_with(start))
            && line.ends_with("is not included in the published package");
        is_left_out || *line == NO_ADDRESS
    };
    text.lines()
        .filter(|line| line.starts_with("warning") && !is_meant(line))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_a_problem_unless_it_names_a_test() {
        let text = "   Packaging a\n\
            warning: ignoring test `b` as `tests/b.rs` is not included in the published package\n\
            warning: ignoring binary `c` as `src/c.rs` is not included in the published package\n\
            warning: manifest has no documentation, homepage or repository\n\
            warning: manifest has no license\n";

        assert_eq!(
            warnings(text),
            [
                "warning: ignoring binary `c` as `src/c.rs` is not included in the published package",
                "warning: manifest has no license",
            ]
        );
    }
}
