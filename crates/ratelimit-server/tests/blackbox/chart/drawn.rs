//! Charts in a real browser: no text overlaps another or leaves the drawing.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Map, Value};
use tempfile::TempDir;

use super::{SvgDocument, draw};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/chart.mjs");

/// Asserts that a browser draws these files as they should be.
fn assert_drawn(files: &[PathBuf]) {
    let ended = Command::new("node").arg(SCRIPT).args(files).output();
    let ended = ended.expect("node, which `cargo xtask test` installs");
    let told = String::from_utf8_lossy(&ended.stdout);
    let why = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{why}");
    let found: Map<String, Value> = serde_json::from_str(&told).unwrap();
    assert_eq!(found.len(), files.len());
    for (file, found) in found {
        assert!(found["texts"].as_u64().unwrap() > 5, "{file}: {found}");
        assert_eq!(found["problems"], Value::Array(Vec::new()), "{file}");
        assert_eq!(found["requests"], 1, "{file} loads something");
        assert_ne!(found["background"][0], found["background"][1], "{file}");
    }
}

/// The pictures of a folder of the documentation.
fn pictures(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(folder);
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|ending| ending == "svg"))
        .map(|path| path.canonicalize().unwrap())
        .collect();
    files.sort();
    files
}

#[test]
fn no_text_of_a_picture_in_the_documentation_overlaps() {
    let files = [pictures("algorithms"), pictures("bench")].concat();
    assert!(files.len() > 12, "{files:?}");

    assert_drawn(&files);
}

#[test]
fn no_text_of_a_chart_overlaps_whatever_is_drawn() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    let long = "WWWWWWWW ".repeat(40);
    let hostile = [
        "<script>&\"'\u{1}",
        "日本語のキー",
        &long,
        &"w".repeat(300),
        "e",
    ];
    let mut keys = String::new();
    for (place, key) in hostile.iter().enumerate() {
        let key = Value::from(*key);
        writeln!(keys, "{{\"t\":{place},\"key\":{key},\"cost\":{place}}}").unwrap();
    }
    let limits = (1..9).map(|hours| format!("fixed_window {hours}000000/{hours}h"));
    let limits = limits.collect::<Vec<_>>().join("; ");
    let far = "{\"t\":99999999.5}\n{\"t\":100000008.25}\n";
    let midnight = "203.0.113.9 - - [16/Nov/2026:23:59:58 +0000] \"GET / HTTP/1.1\" 200 1\n\
               203.0.113.9 - - [17/Nov/2026:00:00:09 +0000] \"GET / HTTP/1.1\" 200 1\n";
    let cases: [(&str, &[&str], &str); 6] = [
        ("hostile.svg", &["--limit", "2/s"], &keys),
        (
            "many.svg",
            &["--limit", &limits, "--limit", "3/s; 9/min"],
            &keys,
        ),
        ("far.svg", &["--limit", "1000000/d"], far),
        (
            "log.svg",
            &["--limit", "leaky_bucket 1/s queue 5"],
            midnight,
        ),
        ("nothing.svg", &["--limit", "1/s"], ""),
        ("moment.svg", &["--limit", "5/ms"], "{\"t\":0}\n"),
    ];

    let mut files = Vec::new();
    for (name, args, trace) in cases {
        draw(&path(name), args, trace);
        SvgDocument::parse(&fs::read_to_string(path(name)).unwrap());
        files.push(path(name));
    }
    assert_drawn(&files);
}
