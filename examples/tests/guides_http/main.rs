//! The guides of docs/guides: their blocks for proxies run, and their warnings hold. `pages.rs` types their commands.

#[path = "../example/mod.rs"]
mod example;
mod llm;
mod proxy;
mod proxy_process;
mod redis_away;
mod uploads;
mod websockets;
mod without_slot;

use std::fs::{self, File};

use example::Example;
use ratelimit_tests::page::Page;
use tempfile::NamedTempFile;

#[test]
fn tiers_are_looked_up_once_for_each_customer() {
    let requests = ["acme", "acme", "initech", "acme", "initech"];
    let requests = requests.map(|customer| format!("x-api-key: k-{customer}\r\n"));

    let log = log(env!("CARGO_BIN_EXE_tiers_from_database"), &[], &requests);

    assert_eq!(log, Page::open("docs/guides/tiers.md").first("log"));
}

#[test]
fn proxy_that_is_not_trusted_is_in_the_log() {
    let requests = ["x-forwarded-for: 203.0.113.1\r\n".to_owned()];

    let binary = env!("CARGO_BIN_EXE_axum_behind_proxy");
    let log = log(binary, &["10.0.0.0/8"], &requests);

    let line = Page::open("docs/guides/proxy.md").first("log");
    assert!(log.contains(line.trim_end()), "{log}");
}

/// The log of an example that gets requests with these header fields.
fn log(binary: &str, arguments: &[&str], requests: &[String]) -> String {
    let log = NamedTempFile::new().expect("a file for the log");
    let file = File::options().append(true).open(log.path());
    let example = Example::start_logging(binary, arguments, file.expect("the log").into());
    for fields in requests {
        assert_eq!(example.ask("GET /", fields), 200);
    }
    drop(example);
    fs::read_to_string(log.path()).expect("the log")
}

/// Whether `holds` comes true within ten seconds, while a server notices that a client hung up.
fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    for _ in 0..500 {
        if holds() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    false
}
