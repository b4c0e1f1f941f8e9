//! The files of a package.

use std::path::Path;

use crate::{check::files, failure::Failure};

/// The crate that carries the scripts.
const CORE: &str = "ratelimit-core";

/// Files that each package has.
const REQUIRED: [&str; 5] = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
];

/// Folders at the top of a crate that no user compiles.
const UNWANTED: [&str; 6] = [
    "benches/",
    "examples/",
    "proptest-regressions/",
    "proto/",
    "target/",
    "tests/",
];

/// Compressed.
const MAX_BYTES: u64 = 1 << 20;

/// The scripts that the package has to carry, as `lua/check.lua`.
pub(super) fn scripts(root: &Path, name: &str) -> Result<Vec<String>, Failure> {
    if name != CORE {
        return Ok(Vec::new());
    }
    let scripts = files::files(&root.join("lua"), "lua")?;
    let names = scripts.iter().filter_map(|script| {
        Some(
            script
                .strip_prefix(root)
                .ok()?
                .to_string_lossy()
                .into_owned(),
        )
    });
    Ok(names.collect())
}

pub(super) fn problems(name: &str, packed: &[String], scripts: &[String]) -> Vec<String> {
    let is_packed = |file: &str| packed.iter().any(|packed| packed == file);
    let required = REQUIRED.iter().copied();
    let required = required.chain(scripts.iter().map(String::as_str));
    let missing = required.filter(|file| !is_packed(file));
    let missing = missing.map(|file| format!("{name}: {file} is not in the package"));
    let is_unwanted = |file: &&String| {
        UNWANTED.iter().any(|folder| file.starts_with(folder)) || file.ends_with("/tests.rs")
    };
    let unwanted = packed.iter().filter(is_unwanted);
    let unwanted = unwanted.map(|file| format!("{name}: {file} is in the package"));
    missing.chain(unwanted).collect()
}

pub(super) fn size_problem(name: &str, bytes: u64) -> Option<String> {
    (bytes == 0 || bytes > MAX_BYTES)
        .then(|| format!("{name}: the package has {bytes} bytes; 1 to {MAX_BYTES} are allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(files: &[&str]) -> Vec<String> {
        files.iter().map(|file| (*file).to_owned()).collect()
    }

    #[test]
    fn a_missing_licence_or_script_is_found() {
        let mut packed = list(&REQUIRED);
        packed.push("src/lib.rs".to_owned());
        let scripts = list(&["lua/check.lua"]);

        assert_eq!(problems("a", &packed, &[]), [""; 0]);
        assert_eq!(
            problems("a", &packed, &scripts),
            ["a: lua/check.lua is not in the package"]
        );
        packed.retain(|file| file != "LICENSE-MIT");
        assert_eq!(
            problems("a", &packed, &[]),
            ["a: LICENSE-MIT is not in the package"]
        );
    }

    #[test]
    fn tests_in_a_package_are_found() {
        let mut packed = list(&REQUIRED);
        packed.extend(list(&["tests/a.rs", "src/b/tests.rs", "src/latests.rs"]));

        assert_eq!(
            problems("a", &packed, &[]),
            [
                "a: tests/a.rs is in the package",
                "a: src/b/tests.rs is in the package",
            ]
        );
    }

    #[test]
    fn an_empty_and_a_large_package_are_found() {
        assert!(size_problem("a", 0).is_some());
        assert!(size_problem("a", 1).is_none());
        assert!(size_problem("a", MAX_BYTES).is_none());
        assert!(size_problem("a", MAX_BYTES + 1).is_some());
    }
}
