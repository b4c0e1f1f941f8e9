//! Compiles the packages from their tarballs, in a workspace that has nothing else.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    check::files,
    command::{cargo, run},
    failure::Failure,
    workspace::{Package, Workspace},
};

const ADVICE: &str = "\
    each file that a crate includes lies in its folder and matches `include` of its Cargo.toml; \
    `package-check` in the target directory has what was compiled";

/// The tarball that `cargo package` has written.
pub(super) fn path(target_directory: &Path, package: &Package) -> PathBuf {
    let name = format!("{}.crate", folder(package));
    target_directory.join("package").join(name)
}

/// Unpacks the tarballs and checks the crates with all features.
///
/// Other crates are taken from the target directory of this workspace, with the same versions and profile.
pub(super) fn compile_all(workspace: &Workspace, packages: &[&Package]) -> Result<(), Failure> {
    let (root, target) = (&workspace.root, &workspace.target_directory);
    let unpacked = target.join("package-check");
    let manifest = files::read(&root.join("Cargo.toml"))?;
    let prepare = || -> io::Result<()> {
        if unpacked.exists() {
            fs::remove_dir_all(&unpacked)?;
        }
        fs::create_dir_all(&unpacked)?;
        fs::write(
            unpacked.join("Cargo.toml"),
            manifest_of(packages, &manifest),
        )?;
        fs::copy(root.join("Cargo.lock"), unpacked.join("Cargo.lock"))?;
        Ok(())
    };
    prepare().map_err(|error| Failure::new(format!("no room to unpack: {error}"), ADVICE))?;
    for package in packages {
        // Files in a tarball have one old date, by which cargo would take changed ones for compiled: `m` drops it.
        let mut tar = Command::new("tar");
        tar.current_dir(&unpacked).arg("-xzmf");
        run(tar.arg(path(target, package)), ADVICE)?;
    }
    let line = "check --quiet --offline --workspace --all-features --lib --bins";
    run(
        cargo(&line.split(' ').collect::<Vec<_>>())
            .current_dir(&unpacked)
            .env("CARGO_TARGET_DIR", target),
        ADVICE,
    )
}

fn folder(package: &Package) -> String {
    format!("{}-{}", package.name, package.version)
}

/// A workspace of the unpacked crates, with the profile of the others, so that what is compiled already is found.
fn manifest_of(packages: &[&Package], root_manifest: &str) -> String {
    let mut text = "[workspace]\nresolver = \"3\"\nmembers = [\"ratelimit-*\"]\n".to_owned();
    text.push_str("\n[patch.crates-io]\n");
    for package in packages {
        let folder = folder(package);
        text.extend([&package.name, " = { path = \"", &folder, "\" }\n"]);
    }
    let mut is_profile = false;
    for line in root_manifest.lines() {
        if line.starts_with('[') {
            is_profile = line.starts_with("[profile.dev");
        }
        // Our own crates are only checked: optimizing them takes a quarter of a minute.
        if is_profile && !line.starts_with("ratelimit-") && !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_workspace_has_the_packages_and_the_profile_of_other_crates() {
        let package = json!({
            "id": "a", "name": "ratelimit-a", "version": "1.2.3", "dependencies": [], "targets": [], "publish": null,
            "manifest_path": "Cargo.toml",
        });
        let package: Package = serde_json::from_value(package).unwrap();
        let root = "[workspace]\nx = 1\n[profile.dev]\ndebug = 0\n# Why.\n[profile.release]\ny = 1\n\
            [profile.dev.package]\nahash.opt-level = 2\nratelimit-core.opt-level = 2\n[other]\nz = 1\n";

        let text = manifest_of(&[&package], root);

        let (_, text) = text.split_once("\n[patch").unwrap();
        assert_eq!(
            text,
            ".crates-io]\nratelimit-a = { path = \"ratelimit-a-1.2.3\" }\n\
             [profile.dev]\ndebug = 0\n[profile.dev.package]\nahash.opt-level = 2\n"
        );
    }
}
