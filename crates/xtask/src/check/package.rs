//! The packages for the registry.

use std::path::Path;

use crate::{
    check::tree,
    command::{cargo, output, run},
    failure::Failure,
    workspace::{Package, Workspace},
};

/// The crate that carries the scripts.
const CORE: &str = "ratelimit-core";

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut line = vec!["package", "--quiet", "--no-verify", "--allow-dirty"];
    let mut problems = Vec::new();
    for package in workspace.published() {
        line.extend(["-p", &package.name]);
        if package.description.is_none() {
            problems.push(format!("{} has no description", package.name));
        }
        if package.name == CORE {
            problems.extend(missing_scripts(&workspace.root, package)?);
        }
    }
    let advice = "see `include`, `exclude`, the links and the versions in the crate's Cargo.toml";
    Failure::unless_none(problems, advice)?;
    run(&mut cargo(&line), advice)
}

fn missing_scripts(root: &Path, core: &Package) -> Result<Vec<String>, Failure> {
    let lua = root.join("lua");
    if !lua.exists() {
        return Ok(Vec::new());
    }
    let list = ["package", "--list", "--allow-dirty", "-p", &core.name];
    let list = output(&mut cargo(&list), "mend the crate's Cargo.toml")?;
    let list = String::from_utf8_lossy(&list);
    let packed: Vec<&str> = list.lines().collect();
    let scripts = tree::files(&lua, "lua")?;
    let names = scripts
        .iter()
        .filter_map(|script| Some(script.strip_prefix(root).ok()?.to_string_lossy()));
    Ok(names
        .filter(|name| !packed.contains(&name.as_ref()))
        .map(|name| format!("{name} is not inside {}", core.name))
        .collect())
}
