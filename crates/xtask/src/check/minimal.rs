//! The published libraries with the lowest versions that their manifests ask for.
//!
//! Each library is a path dependency of a small service, as in the README, which pins every direct dependency of ours to
//! its lowest version. Without Redis this includes the lowest tokio that we promise; with Redis, the lowest that the redis
//! crate allows.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    command::{cargo, run},
    failure::Failure,
    workspace::{Package, Workspace},
};

const ADVICE: &str = "raise the version in the workspace's Cargo.toml to the lowest that compiles";

/// Dependencies with `redis` alone, and what they ask for.
const REDIS_ONLY: [&str; 5] = ["bb8", "bb8-redis", "governor", "redis", "rustls"];

/// The lowest tokio that the crates below the redis crate allow.
const REDIS_TOKIO: &str = "1.51.0";

/// With tokio 1.47 cargo selects actix-server 2.8, which does not compile with later versions.
const ACTIX_RT: &str = "2.11.0";

/// Our libraries and their features, in a service on the memory store.
const MEMORY: &[(&str, &[&str])] = &[
    ("ratelimit-core", &["acquire"]),
    ("ratelimit-http", &["tokio", "toml", "yaml"]),
    ("ratelimit-tower", &["axum"]),
    ("ratelimit-axum", &["toml", "yaml"]),
    ("ratelimit-actix", &["toml", "yaml"]),
];

/// The same with Redis, and the library for Envoy.
const REDIS: &[(&str, &[&str])] = &[
    ("ratelimit-core", &["redis-cluster", "redis-tls", "bb8"]),
    ("ratelimit-tower", &[]),
    ("ratelimit-axum", &["redis"]),
    ("ratelimit-actix", &["redis"]),
    ("ratelimit-envoy", &[]),
];

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut lowest = lowest_versions(workspace);
    let tokio = lowest.insert("tokio".to_owned(), REDIS_TOKIO.to_owned());
    build(workspace, "redis", REDIS, &lowest)?;
    lowest.extend(tokio.map(|version| ("tokio".to_owned(), version)));
    lowest.retain(|name, _| !REDIS_ONLY.contains(&name.as_str()));
    lowest.retain(|name, _| !name.starts_with("tonic") && !name.starts_with("prost"));
    lowest.insert("actix-rt".to_owned(), ACTIX_RT.to_owned());
    build(workspace, "memory", MEMORY, &lowest)
}

/// The lowest version of each normal dependency of our libraries.
fn lowest_versions(workspace: &Workspace) -> BTreeMap<String, String> {
    let libraries = MEMORY.iter().chain(REDIS).map(|(name, _)| *name);
    let libraries: Vec<&str> = libraries.chain(["ratelimit-macros"]).collect();
    let packages = workspace.published();
    let packages = packages.filter(|package| libraries.contains(&package.name.as_str()));
    let requirements = packages.flat_map(Package::requirements);
    let others = requirements.filter(|(name, _)| !name.starts_with("ratelimit-"));
    others
        .map(|(name, requirement)| (name.to_owned(), lowest(requirement)))
        .collect()
}

/// `1.47` and `^1.47` are 1.47.0 at the lowest.
fn lowest(requirement: &str) -> String {
    let numbers = requirement.trim_start_matches(['^', '=']).split('.');
    let numbers: Vec<&str> = numbers.chain(["0", "0"]).take(3).collect();
    numbers.join(".")
}

fn build(
    workspace: &Workspace,
    name: &str,
    libraries: &[(&str, &[&str])],
    lowest: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    let folder = workspace.target_directory.join("minimal").join(name);
    let manifest = write_service(workspace, &folder, libraries, lowest)
        .map_err(|error| Failure::new(format!("{}: {error}", folder.display()), ADVICE))?;
    let tokio = lowest.get("tokio").map_or("none", String::as_str);
    println!("    {name}: {} pinned, tokio {tokio}", lowest.len());
    let mut check = cargo(&["check", "-q", "--manifest-path"]);
    check.arg(manifest);
    check.env(
        "CARGO_TARGET_DIR",
        workspace.target_directory.join("minimal/target"),
    );
    // Older versions of a dependency make lints fire that the step `clippy` does not see.
    check.env("RUSTFLAGS", "-Awarnings");
    run(&mut check, ADVICE)
}

/// Writes a service with an empty `main`, and returns its manifest.
fn write_service(
    workspace: &Workspace,
    folder: &Path,
    libraries: &[(&str, &[&str])],
    lowest: &BTreeMap<String, String>,
) -> io::Result<PathBuf> {
    let mut manifest = format!(
        "[package]\nname = \"minimal-{}\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n",
        folder.file_name().unwrap_or_default().display()
    );
    for (name, features) in libraries {
        let path = workspace.root.join("crates").join(name);
        let _ = writeln!(
            manifest,
            "{name} = {{ path = \"{}\", features = {features:?} }}",
            path.display()
        );
    }
    for (name, version) in lowest {
        let _ = writeln!(
            manifest,
            "{name} = {{ version = \"={version}\", default-features = false }}"
        );
    }
    fs::create_dir_all(folder.join("src"))?;
    // Older entries would keep versions that the manifest no longer asks for.
    match fs::remove_file(folder.join("Cargo.lock")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::write(folder.join("src/main.rs"), "fn main() {}\n")?;
    let path = folder.join("Cargo.toml");
    fs::write(&path, manifest)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_version_of_a_requirement_has_three_numbers() {
        assert_eq!(lowest("^1.47"), "1.47.0");
        assert_eq!(lowest("0.3.3"), "0.3.3");
        assert_eq!(lowest("^1"), "1.0.0");
    }
}
