//! The numbers of the README and of the table of versions.

use std::{fs, path::Path};

use ratelimit_core::RedisConfig;
use ratelimit_http::policy_file::{Format, PolicyFile};

const README: &str = include_str!("../../../README.md");
const START: &str = include_str!("../../../docs/start/README.md");
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
