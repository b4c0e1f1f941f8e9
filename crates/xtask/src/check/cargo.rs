//! Cargo, its components and its plugins.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    check::text,
    command::{cargo, run},
    failure::Failure,
    tools::{self, Profile},
    workspace::Workspace,
};

const MACHETE: (&str, &str) = ("cargo-machete", "0.9.2");
const DENY: (&str, &str) = ("cargo-deny", "0.20.2");

pub(super) fn format(_: &Workspace) -> Result<(), Failure> {
    run(
        &mut cargo(&["fmt", "--all", "--check"]),
        "run `cargo fmt --all` (`rustup component add rustfmt` if it is missing)",
    )
}

pub(super) fn machete(workspace: &Workspace) -> Result<(), Failure> {
    let mut machete = plugin(workspace, MACHETE)?;
    run(
        machete.arg("--skip-target-dir"),
        "remove the dependency from the manifest",
    )
}

/// Licences, sources and banned crates. Vulnerabilities only if `cargo deny fetch db` has downloaded them: that needs GitHub.
pub(super) fn deny(workspace: &Workspace) -> Result<(), Failure> {
    const ADVICE: &str = "use another crate, or change .deny.toml with a reason";
    let mut deny = plugin(workspace, DENY)?;
    run(
        deny.args([
            "check",
            "--hide-inclusion-graph",
            "bans",
            "licenses",
            "sources",
        ]),
        ADVICE,
    )?;
    if !has_advisories() {
        println!("    vulnerabilities are not checked: `cargo deny fetch db` downloads the list");
        return Ok(());
    }
    let mut deny = plugin(workspace, DENY)?;
    run(deny.args(["--offline", "check", "advisories"]), ADVICE)
}

fn has_advisories() -> bool {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    let databases = home.and_then(|home| fs::read_dir(home.join("advisory-dbs")).ok());
    let has_files =
        |folder: PathBuf| fs::read_dir(folder).is_ok_and(|mut all| all.next().is_some());
    databases.is_some_and(|databases| databases.flatten().any(|entry| has_files(entry.path())))
}

/// A plugin of cargo, at the top of the repository.
fn plugin(workspace: &Workspace, (name, version): (&str, &str)) -> Result<Command, Failure> {
    let target = &workspace.target_directory;
    let mut command = Command::new(tools::ensure_crate(target, name, version, Profile::Debug)?);
    command.current_dir(&workspace.root);
    Ok(command)
}

/// All features of all targets; then the libraries as most applications compile them, without Redis.
pub(super) fn clippy(workspace: &Workspace) -> Result<(), Failure> {
    const ADVICE: &str = "fix the warnings (`rustup component add clippy` if it is missing)";
    let features = workspace.features();
    let line = format!("clippy --workspace --all-targets --features {features} -- -D warnings");
    run(&mut cargo(&line.split(' ').collect::<Vec<_>>()), ADVICE)?;

    let mut defaults = cargo(&["clippy"]);
    let published = workspace.published();
    for library in published.filter(|package| package.name != "ratelimit-server") {
        defaults.args(["-p", &library.name]);
    }
    run(defaults.args(["--", "-D", "warnings"]), ADVICE)
}

pub(super) fn doc(workspace: &Workspace) -> Result<(), Failure> {
    const ADVICE: &str = "fix the links and the other warnings of rustdoc";
    let pages = workspace.target_directory.join("doc");
    remove(&pages)?;
    let flags = env::var("RUSTDOCFLAGS").unwrap_or_default();
    let features = workspace.features();
    run(
        cargo(&["doc", "--no-deps", "--workspace", "--features", &features])
            .env("RUSTDOCFLAGS", format!("{flags} -D warnings").trim_start()),
        ADVICE,
    )?;
    let published = workspace.published();
    let folders = published.map(|package| pages.join(package.name.replace('-', "_")));
    text::links_of_built_pages(folders)
}

/// Removes the pages of items that no longer exist.
fn remove(folder: &Path) -> Result<(), Failure> {
    if !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(folder).map_err(|error| {
        let problem = format!("{} cannot be removed: {error}", folder.display());
        Failure::new(problem, "remove it by hand")
    })
}

/// The packages as the registry gets them. `cargo xtask acceptance` also compiles them from their archives.
pub(super) fn package(workspace: &Workspace) -> Result<(), Failure> {
    run(
        package_command(workspace).arg("--no-verify"),
        PACKAGE_ADVICE,
    )
}

pub(crate) const PACKAGE_ADVICE: &str = "see `include` and the fields of [package] in the crate's Cargo.toml; cargo 1.90 or newer is needed";

/// `cargo package` for all published crates.
pub(crate) fn package_command(workspace: &Workspace) -> Command {
    let mut package = cargo(&["package", "--allow-dirty"]);
    for published in workspace.published() {
        package.args(["-p", &published.name]);
    }
    package
}
