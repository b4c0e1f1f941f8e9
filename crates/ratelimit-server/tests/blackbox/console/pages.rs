//! The page in a real browser. Each test runs one file of `tests/browser/console`.

use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/console");

/// Runs the tests of a file, and shows its output if one fails.
fn run(file: &str) {
    let ended = Command::new("node")
        .args(["--test", "--test-reporter=spec"])
        .arg(format!("{FOLDER}/{file}"))
        .env("RATELIMIT_SERVER", env!("CARGO_BIN_EXE_ratelimit-server"))
        .output();
    let ended = ended.expect("node, which `cargo xtask test` installs");
    let [out, error] =
        [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(ended.status.success(), "{out}{error}");
    // A file without tests succeeds as well.
    assert!(out.contains('✔'), "no test ran: {out}");
}

#[test]
fn every_screen_is_accessible_and_fits() {
    run("screens.test.mjs");
}

#[test]
fn the_page_behaves() {
    run("behaviour.test.mjs");
}

#[test]
fn the_page_works_with_a_real_server() {
    run("server.test.mjs");
}

#[test]
fn every_number_is_right() {
    run("numbers.test.mjs");
}

/// Every file of the page is embedded, and so part of its tests.
#[test]
fn every_file_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/console");
    let assets = include_str!("../../../src/console/assets.rs");
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(assets.contains(&format!("    \"{name}\"\n")), "{name}");
        assert!(
            super::assets::FILES.iter().any(|(file, _)| *file == name),
            "{name}"
        );
    }
}
