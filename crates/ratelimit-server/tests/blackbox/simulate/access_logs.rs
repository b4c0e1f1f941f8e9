//! Access logs as traces.

use std::fs;

use tempfile::TempDir;

use super::{lines, simulate};
use crate::server::binary;

/// A line of the combined log format.
fn line(host: &str, time: &str) -> String {
    format!("{host} - alice [{time}] \"GET /a?b=[c] HTTP/1.1\" 200 512 \"-\" \"curl/8.5\"\n")
}

/// The times and keys of the answers, with whether each passed.
fn told(output: &std::process::Output) -> Vec<(u64, String, bool)> {
    let told = lines(output).into_iter().map(|line| {
        let key = line["key"].as_str().unwrap().to_owned();
        (line["t"].as_u64().unwrap(), key, line["allowed"] == true)
    });
    told.collect()
}

#[test]
fn an_access_log_is_replayed_by_its_clients_and_times() {
    let log = [
        line("203.0.113.9", "16/Nov/2026:14:55:02 +0000"),
        line("203.0.113.9", "16/Nov/2026:15:55:02 +0100"),
        line("2001:db8:1:2::7", "16/Nov/2026:14:55:01 +0000"),
        line("2001:db8:1:2:ffff::8", "16/Nov/2026:14:55:02 +0000"),
        line("203.0.113.9", "16/Nov/2026:14:55:03 +0000"),
    ];

    let output = simulate(&["--limit", "fixed_window 1/min"], &log.concat());

    let at = |second: u64, key: &str, passed| (1_794_840_900 + second, key.to_owned(), passed);
    assert_eq!(
        told(&output),
        [
            at(1, "ip:2001:db8:1:2::/64", true),
            at(2, "ip:203.0.113.9", true),
            at(2, "ip:203.0.113.9", false),
            at(2, "ip:2001:db8:1:2::/64", false),
            at(3, "ip:203.0.113.9", false),
        ]
    );
    let notes = str::from_utf8(&output.stderr).unwrap();
    assert!(
        notes.contains("1 line was earlier than the line before"),
        "{notes}"
    );
    assert!(notes.contains("3 denied (60.0 %)"), "{notes}");
    assert!(notes.contains("2 keys denied, longest wait 58s"), "{notes}");
}

#[test]
fn each_file_has_its_own_format() {
    let dir = TempDir::new().unwrap();
    let [log, json] = ["access.log", "trace.jsonl"].map(|name| dir.path().join(name));
    fs::write(&log, line("203.0.113.9", "16/Nov/2026:14:55:02 +0000")).unwrap();
    fs::write(
        &json,
        "{\"t\":1794840902,\"key\":\"ip:203.0.113.9\",\"cost\":4}\n",
    )
    .unwrap();

    let replayed = |files: &[&std::path::Path]| {
        let limit = ["simulate", "--limit", "fixed_window 4/min"];
        binary().args(limit).args(files).output().unwrap()
    };

    let key = || "ip:203.0.113.9".to_owned();
    assert_eq!(
        told(&replayed(&[&log, &json])),
        [(1_794_840_902, key(), true), (1_794_840_902, key(), false)]
    );
    fs::write(&json, "{\"t\":0}\nnonsense\n").unwrap();
    let output = replayed(&[&log, &json]);
    let why = str::from_utf8(&output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(why.contains("trace.jsonl: line 2 of the trace: "), "{why}");
}

#[test]
fn a_line_that_cannot_be_read_is_an_error_or_counted() {
    let good = line("203.0.113.9", "16/Nov/2026:14:55:02 +0000");
    let bad = line("203.0.113.9", "31/Nov/2026:14:55:02 +0000");
    let log = [&*good, &bad, "\n", &bad, &good].concat();
    let limit = ["--limit", "1/s"];

    let strict = simulate(&limit, &log);
    let skipping = simulate(&[&limit[..], &["--skip-invalid"]].concat(), &log);

    let why = str::from_utf8(&strict.stderr).unwrap();
    assert_eq!(strict.status.code(), Some(1));
    assert!(strict.stdout.is_empty());
    assert!(
        why.contains("line 2 of the trace: expected a time"),
        "{why}"
    );
    let notes = str::from_utf8(&skipping.stderr).unwrap();
    assert!(
        notes.contains("note: 2 lines were skipped, the first: line 2 of the trace: "),
        "{notes}"
    );
    assert_eq!(lines(&skipping).len(), 2);
}

#[test]
fn the_format_can_be_said() {
    let log = line("203.0.113.9", "16/Nov/2026:14:55:02 +0000");
    let run = |format, trace: &str| {
        let args = ["--limit", "1/s", "--trace-format", format];
        simulate(&args, trace).status.code()
    };

    assert_eq!(run("access-log", &log), Some(0));
    assert_eq!(run("json", &log), Some(1));
    assert_eq!(run("json", "{\"t\":0}\n"), Some(0));
    assert_eq!(run("access-log", "{\"t\":0}\n"), Some(1));
    assert_eq!(run("xml", ""), Some(2));
}
