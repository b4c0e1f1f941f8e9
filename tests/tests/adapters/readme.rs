//! The numbers of the README, and the tables of versions and features.

use std::{collections::BTreeSet, fs, path::Path};

use ratelimit_core::RedisConfig;
use ratelimit_http::policy_file::{Format, PolicyFile};

const README: &str = include_str!("../../../README.md");
const START: &str = include_str!("../../../docs/start/README.md");
const FEATURES: &str = include_str!("../../../docs/reference/features.md");
const MANIFEST: &str = include_str!("../../../Cargo.toml");
const SERVERS: &str = include_str!("../../../crates/xtask/src/servers.rs");
const EQUIVALENCE: &str = include_str!("../engine/equivalence.rs");
const CLUSTER_DEMO: &str = include_str!("../../../examples/tests/run.rs");

/// The README in one line.
fn readme() -> String {
    README.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_counts_of_the_readme_are_those_of_the_tests() {
    let constant = |name: &str| -> u64 {
        let (_, value) = EQUIVALENCE.split_once(name).expect("a constant");
        let value = value.split(';').next().expect("a value").replace('_', "");
        value.parse().expect("a number")
    };
    let steps = constant("const STEPS: u64 = ");
    let per_trace = constant("const STEPS_PER_TRACE: u64 = ");
    let tests = EQUIVALENCE.matches("#[tokio::test]").count() as u64;
    let compared = steps / per_trace * per_trace * tests;
    let sentence = format!("{},{} random steps", compared / 1000, compared % 1000);
    assert!(readme().contains(&sentence), "{sentence}");

    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chaos"));
    let mut faults = 0;
    for file in fs::read_dir(folder).expect("the suite") {
        let text = fs::read_to_string(file.expect("a file").path()).expect("text");
        faults += text.matches("\n#[tokio::test").count();
    }
    assert!(faults > 100, "{faults}");
    assert!(readme().contains("More than 100 tests"));

    let timeout = RedisConfig::DEFAULT_TIMEOUT.as_millis();
    let sentence = format!("waits for it longer than {timeout} ms");
    assert!(readme().contains(&sentence), "{sentence}");

    assert!(CLUSTER_DEMO.contains("4 instances, 32 clients, 1600 requests"));
    assert!(CLUSTER_DEMO.contains("500/d: 500 admitted"));
    let sentence = "Of 1,600 requests to four instances on a limit of 500, exactly 500 pass";
    assert!(readme().contains(sentence));
}

#[test]
fn the_versions_are_those_of_the_manifests() {
    let version = |name: &str| {
        let line = MANIFEST
            .lines()
            .find(|line| line.starts_with(&format!("{name} = ")));
        let line = line.unwrap_or_else(|| panic!("{name} is not in the manifest"));
        let version = line.split('"').nth(1).expect("a version");
        version.to_owned()
    };
    let mut compared = 0;
    for row in START.lines().filter(|line| line.starts_with("| ")) {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let (Some(name), Some(shown)) = (cells.next(), cells.next()) else {
            continue;
        };
        let name = match name {
            "Rust" => "rust-version",
            "redis (the crate)" => "redis",
            "actix-web" | "axum" | "hyper" | "tokio" | "tonic" | "tower" => name,
            _ => continue,
        };
        let shown = shown.split([' ', ',']).next().expect("a version");
        let required = version(name);
        let is_equal = required == shown || required.starts_with(&format!("{shown}."));
        assert!(is_equal, "{name}: {shown} is not {required}");
        compared += 1;
    }
    assert_eq!(compared, 8);

    let servers = "Redis 6.2, 7.0, 8.0 and Valkey 9";
    assert!(SERVERS.contains(servers) && START.contains(servers));
    let rust = format!("Rust {}", version("rust-version"));
    assert!(README.contains(&rust) && README.contains("Redis 6.2 to 8.0, Valkey 9"));
}

#[test]
fn the_policies_of_the_readme_are_read() {
    let (_, table) = README
        .split_once("| you want | policy file | Rust |\n")
        .expect("the table of policies");
    let rows = table.lines().skip(1).take_while(|row| row.starts_with('|'));
    let fields: Vec<&str> = rows
        .map(|row| row.split(" | ").nth(1).expect("a cell").trim_matches('`'))
        .collect();
    assert_eq!(fields.len(), 7);

    for field in fields {
        let text = format!("[policy.api]\nlimits = \"10/min\"\n{field}\n");
        let file = PolicyFile::parse(&text, Format::Toml);
        assert_eq!(file.diagnostics, [], "{field}");
    }
}

/// The names in a section of a manifest, with their values.
fn section<'a>(manifest: &'a str, name: &str) -> Vec<(&'a str, &'a str)> {
    let Some((_, section)) = manifest.split_once(&format!("\n[{name}]\n")) else {
        return Vec::new();
    };
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once(" = ")).collect()
}

#[test]
fn the_features_are_those_of_the_manifests() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut published = 0;
    for entry in fs::read_dir(crates).expect("the crates") {
        let folder = entry.expect("a crate").path();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        if manifest.contains("\npublish = false\n") {
            continue;
        }
        published += 1;
        let name = folder.file_name().expect("a name").to_string_lossy();
        let (_, rows) = FEATURES
            .split_once(&format!("\n### {name}\n"))
            .unwrap_or_else(|| panic!("{name} has no section"));
        let rows = rows.split("\n#").next().unwrap_or_default().lines();
        let rows = rows.filter(|row| row.starts_with("| `"));
        let rows: BTreeSet<(&str, bool)> = rows
            .map(|row| {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                (cells[1].trim_matches('`'), cells[2] == "yes")
            })
            .collect();

        let features = section(&manifest, "features");
        let (defaults, features): (Vec<_>, Vec<_>) = features
            .into_iter()
            .partition(|(feature, _)| *feature == "default");
        let is_default = |feature: &str| {
            let mut lists = defaults.iter();
            lists.any(|(_, list)| list.contains(&format!("\"{feature}\"")))
        };
        let features = features
            .into_iter()
            .map(|(name, _)| (name, is_default(name)));
        assert_eq!(rows, features.collect(), "{name}");
    }
    assert_eq!(published, 8);

    let (_, versions) = FEATURES.split_once("\n## Versions\n").expect("a section");
    for (field, sentence) in [("version", "the version "), ("rust-version", "Rust ")] {
        let package = section(MANIFEST, "workspace.package");
        let value = package.iter().find(|(name, _)| *name == field);
        let value = value.expect("a version").1.trim_matches('"');
        assert!(versions.contains(&format!("{sentence}{value}")), "{value}");
    }
    let rows = versions.lines().filter(|row| row.starts_with("| `"));
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let declared = section(MANIFEST, "workspace.dependencies");
        let name = cells[1].trim_matches('`');
        let (_, value) = declared
            .iter()
            .find(|(found, _)| *found == name)
            .expect(name);
        assert!(
            value.contains(&format!("\"{}\"", cells[2])),
            "{row}: {value}"
        );
    }
}
