//! Traces, replayed through `simulate` in both stores.

mod access_logs;
mod policy_files;
mod prefetch;

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Write as _},
    process::{Output, Stdio},
};

use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use ratelimit_tests::redis::TestRedis;
use serde_json::Value;
use tempfile::TempDir;

use crate::server::binary;

const VECTORS: &str = include_str!("../../../../../tests/data/algorithms.json");

pub(crate) fn simulate(args: &[&str], trace: &str) -> Output {
    let mut child = binary()
        .arg("simulate")
        .args(args)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may refuse its arguments without reading.
    let _ = child.stdin.take().unwrap().write_all(trace.as_bytes());
    child.wait_with_output().unwrap()
}

pub(crate) fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = str::from_utf8(&output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_line_is_as_documented() {
    let trace = "{\"t\":0.5,\"key\":\"a\",\"cost\":1}\n";

    let output = simulate(&["--limit", "token_bucket 10/s burst 100"], trace);

    let expected = "{\"t\":0.5,\"key\":\"a\",\"cost\":1,\"allowed\":true,\"limit\":100,\"remaining\":99,\
        \"retryAfterMicros\":null,\"resetAfterMicros\":100000,\"delayMicros\":0,\"impossible\":false}\n";
    assert_eq!(str::from_utf8(&output.stdout).unwrap(), expected);
}

#[test]
fn a_reader_that_leaves_early_gets_its_lines_and_the_chart_is_drawn() {
    let dir = TempDir::new().unwrap();
    let chart = dir.path().join("chart.svg");
    let mut child = binary()
        .args(["simulate", "--limit", "5/s", "--traffic", "steady"])
        .args(["--hits", "20000", "--chart", chart.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut first).unwrap();
    drop(lines);

    let output = child.wait_with_output().unwrap();

    assert!(output.status.success(), "{output:?}");
    let summary = str::from_utf8(&output.stderr).unwrap();
    assert!(
        summary.starts_with("5/s: 20000 hits of 1 key in "),
        "{summary}"
    );
    assert_eq!(summary.lines().count(), 1, "{summary}");
    assert!(
        std::fs::read_to_string(chart)
            .unwrap()
            .ends_with("</svg>\n")
    );
}

#[test]
fn hits_are_replayed_in_the_order_of_their_time() {
    let unsorted =
        "{\"t\":1.5,\"key\":\"c\"}\n{\"t\":0,\"key\":\"a\"}\n{\"t\":1.5,\"key\":\"b\"}\n";

    let output = simulate(&["--limit", "fixed_window 1/s"], unsorted);

    let notes = str::from_utf8(&output.stderr).unwrap();
    assert!(notes.contains("note: 1 line was earlier"), "{notes}");
    assert!(
        notes.contains("3 hits of 3 keys in 1.5s: 3 allowed, 0 delayed, 0 over, 0 denied (0.0 %), 0 impossible; 0 keys denied, longest wait 0s"),
        "{notes}"
    );
    let answers = lines(&output);
    let keys: Vec<&str> = answers
        .iter()
        .filter_map(|line| line["key"].as_str())
        .collect();
    assert_eq!(keys, ["a", "c", "b"]);
}

/// The sweep of the memory store drops the value of a window that is over, which shows if the clock steps back.
#[tokio::test]
async fn a_line_that_comes_late_is_answered_alike_in_both_stores() {
    let redis = TestRedis::start().await;
    let mut trace = "{\"t\":3}\n".to_owned();
    for _ in 0..64 {
        trace.push_str("{\"t\":8,\"cost\":0}\n");
    }
    trace.push_str("{\"t\":3.6}\n");
    let limit = ["--limit", "fixed_window 2/1s"];

    let memory = simulate(&limit, &trace);
    let shared = simulate(&[&limit[..], &["--store", redis.url()]].concat(), &trace);

    assert_eq!(memory.stdout, shared.stdout);
    assert_eq!(lines(&memory)[1]["remaining"], 0);
}

#[test]
fn no_key_is_forgotten_in_memory_however_many_there_are() {
    let mut trace = String::new();
    for number in 0..9_900 {
        writeln!(trace, "{{\"t\":0.{number:04},\"key\":\"k{number}\"}}").unwrap();
    }
    for number in 0..100 {
        writeln!(trace, "{{\"t\":1,\"key\":\"k{number}\"}}").unwrap();
    }

    let answers = lines(&simulate(&["--limit", "1/h"], &trace));

    let again = &answers[9_900..];
    assert_eq!(again.len(), 100);
    assert!(again.iter().all(|line| line["allowed"] == false));
}

#[test]
fn a_key_with_several_budgets_is_not_forgotten_in_memory() {
    let trace = "{\"t\":0,\"key\":\"a\"}\n{\"t\":1,\"key\":\"b\"}\n{\"t\":2,\"key\":\"c\"}\n{\"t\":3,\"key\":\"a\"}\n";

    let answers = lines(&simulate(&["--limit", "1/h by ip; 1/h by user"], trace));

    assert_eq!(answers[3]["allowed"], false);
}

#[tokio::test]
async fn every_vector_holds_in_both_stores() {
    let redis = TestRedis::start().await;
    let file: Value = serde_json::from_str(VECTORS).unwrap();

    for vector in file["vectors"].as_array().unwrap() {
        let steps = vector["steps"].as_array().unwrap();
        let mut trace = String::new();
        for step in steps {
            writeln!(
                trace,
                "{{\"t\":{},\"cost\":{}}}",
                seconds(&step[0]),
                step[1]
            )
            .unwrap();
        }
        let limit = vector["text"].as_str().unwrap();
        let memory = simulate(&["--limit", limit], &trace);
        let shared = simulate(&["--limit", limit, "--store", redis.url()], &trace);

        assert_eq!(memory.stdout, shared.stdout, "{}", vector["id"]);
        let answers = lines(&memory);
        assert_eq!(answers.len(), steps.len());
        for (step, answer) in steps.iter().zip(answers) {
            agrees(step, &answer, &vector["id"]);
        }
    }
    assert_eq!(keys(&redis), Vec::<String>::new());
}

fn agrees(step: &Value, answer: &Value, id: &Value) {
    let context = format!("{id} {step}: {answer}");
    assert_eq!(answer["allowed"], step[2], "{context}");
    assert_eq!(answer["remaining"], step[3], "{context}");
    assert_eq!(answer["impossible"], step[4] == "never", "{context}");
    match &step[4] {
        Value::Null => {}
        Value::String(word) if word == "never" => {
            assert_eq!(answer["retryAfterMicros"], Value::Null, "{context}");
        }
        Value::String(word) if word == ">0" => {
            assert_ne!(answer["retryAfterMicros"], 0, "{context}");
        }
        wait => assert_eq!(answer["retryAfterMicros"], micros(wait), "{context}"),
    }
    for (place, name) in [(5, "resetAfterMicros"), (6, "delayMicros")] {
        if !step[place].is_null() {
            assert_eq!(answer[name], micros(&step[place]), "{context}");
        }
    }
}

/// Seconds, whole or as `"a/b"`, in microseconds.
fn micros(seconds: &Value) -> u64 {
    if let Some(whole) = seconds.as_u64() {
        return whole * 1_000_000;
    }
    let (a, b) = seconds.as_str().unwrap().split_once('/').unwrap();
    a.parse::<u64>().unwrap() * 1_000_000 / b.parse::<u64>().unwrap()
}

fn seconds(value: &Value) -> String {
    let micros = micros(value);
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn keys(redis: &TestRedis) -> Vec<String> {
    ::redis::cmd("KEYS")
        .arg("*")
        .query(&mut redis.connection())
        .unwrap()
}

#[tokio::test]
async fn random_traces_are_answered_alike_and_leave_nothing() {
    let redis = TestRedis::start().await;
    let dir = TempDir::new().unwrap();
    let chart = dir.path().join("chart.svg");
    let limit = prop_oneof![
        Just("token_bucket 3/s burst 5"),
        Just("leaky_bucket 7/s queue 4"),
        Just("fixed_window 3/2s"),
        Just("sliding_window_log 4/1s"),
        Just("sliding_window_log 3/1s count-denied"),
        Just("sliding_window_counter 5/1s"),
        Just("token_bucket 1/s burst 2; sliding_window_counter 9/10s; fixed_window 4/3s"),
        Just("concurrency 2 lease 700ms"),
        Just("concurrency 3 lease 2s; fixed_window 9/5s"),
        Just("fixed_window 2/1s; penalty_box 2/2s for 3s"),
        Just("concurrency 1 lease 300ms; penalty_box 3/4s for 1s"),
    ];
    let throttle = prop_oneof![Just("hard"), Just("soft 50%"), Just("soft 100%")];
    let hit = (0_u64..8_000_000, 0_u8..3, 0_u64..6);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 80,
        failure_persistence: None,
        ..ProptestConfig::default()
    });

    runner
        .run(
            &(limit, throttle, vec(hit, 1..60)),
            |(limit, throttle, hits)| {
                let mut trace = String::new();
                for (at, key, cost) in hits {
                    let (whole, rest) = (at / 1_000_000, at % 1_000_000);
                    writeln!(
                        trace,
                        "{{\"t\":{whole}.{rest:06},\"key\":\"{{{key}}}*\",\"cost\":{cost}}}"
                    )
                    .unwrap();
                }
                let limits = [
                    "--limit",
                    limit,
                    "--limit",
                    "10/min",
                    "--throttle",
                    throttle,
                ];
                // A chart looks between the hits, which changes no answer.
                let chart = ["--chart", chart.to_str().unwrap()];
                let memory = simulate(&[&limits[..], &chart].concat(), &trace);
                let store = ["--store", redis.url()];
                let shared = simulate(&[&limits[..], &store].concat(), &trace);
                prop_assert!(memory.status.success() && !memory.stdout.is_empty());
                let difference = lines(&memory)
                    .into_iter()
                    .zip(lines(&shared))
                    .find(|(one, other)| one != other);
                prop_assert_eq!(difference, None);
                prop_assert_eq!(memory.stdout.len(), shared.stdout.len());
                Ok(())
            },
        )
        .unwrap();
    assert_eq!(keys(&redis), Vec::<String>::new());
}

#[tokio::test]
async fn other_keys_in_the_store_are_left_alone() {
    let redis = TestRedis::start().await;
    let mut connection = redis.connection();
    let () = ::redis::cmd("SET")
        .arg("rate_limiter:v1:p:{key:a}")
        .arg("mine")
        .query(&mut connection)
        .unwrap();

    simulate(
        &["--limit", "5/s", "--store", redis.url()],
        "{\"t\":1,\"key\":\"a\"}\n",
    );

    assert_eq!(keys(&redis), ["rate_limiter:v1:p:{key:a}"]);
}

#[test]
fn several_limits_are_separate_runs() {
    let trace = "{\"t\":0}\n{\"t\":0}\n";

    let answers = lines(&simulate(&["--limit", "1/s", "--limit", "2/s; 9/h"], trace));

    let told: Vec<_> = answers
        .iter()
        .map(|line| {
            (
                line["policy"].as_str().unwrap(),
                line["allowed"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("1/s", true),
            ("1/s", false),
            ("2/s; 9/h", true),
            ("2/s; 9/h", true)
        ]
    );
    assert_eq!(answers[0]["key"], "default");
}

#[test]
fn a_bad_line_is_named_and_nothing_is_printed() {
    let output = simulate(&["--limit", "1/s"], "{\"t\":0}\n{\"t\":\"soon\"}\n");

    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(why.contains("line 2 of the trace"), "{why}");
}

#[test]
fn a_bad_limit_ends_with_two() {
    for args in [
        &["--limit", "10/fortnight"][..],
        &["--limit", "0/s"],
        &[],
        &["--limit", "1/s", "--traffic", "steady"],
        &["--limit", "1/s", "--throttle", "soft"],
        &["--limit", "1/s", "--throttle", "soft -1%"],
    ] {
        assert_eq!(simulate(args, "").status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_store_that_is_not_there_is_an_error() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = free.local_addr().unwrap();
    drop(free);

    let url = format!("redis://{addr}");
    let output = simulate(
        &[
            "--limit",
            "1/s",
            "--store",
            &url,
            "--connect-timeout",
            "300ms",
        ],
        "{\"t\":0}\n",
    );

    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn made_up_traffic_is_the_same_for_the_same_seed() {
    for traffic in ["burst", "steady", "poisson", "boundary"] {
        let made = |seed: &str| {
            let args = [
                "simulate",
                "--limit",
                "fixed_window 20/s",
                "--traffic",
                traffic,
                "--seed",
                seed,
            ];
            binary().args(args).output().unwrap()
        };
        let (one, again) = (made("1"), made("1"));

        assert_eq!(one.stdout, again.stdout);
        let answers = lines(&one);
        assert_eq!(answers.len(), 200);
        let denied = answers
            .iter()
            .filter(|line| line["allowed"] == false)
            .count();
        let expected = traffic != "boundary";
        assert_eq!(denied > 0, expected, "{traffic}: {denied}");
    }
}

#[test]
fn a_slot_is_held_for_its_lease_by_each_line() {
    let trace = "{\"t\":0}\n{\"t\":0.1}\n{\"t\":0.2}\n{\"t\":1.0}\n{\"t\":1.05}\n";

    let answers = lines(&simulate(&["--limit", "concurrency 2 lease 1s"], trace));

    let told: Vec<_> = answers
        .iter()
        .map(|line| (line["allowed"] == true, line["retryAfterMicros"].as_u64()))
        .collect();
    let expected = [
        (true, None),
        (true, None),
        (false, Some(800_000)),
        (true, None),
        (false, Some(50_000)),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_soft_limit_lets_some_more_through_and_says_so() {
    let trace = "{\"t\":0}\n".repeat(4);
    let args = ["--limit", "fixed_window 2/s", "--throttle", "soft 50%"];

    let answers = lines(&simulate(&args, &trace));

    let told: Vec<_> = answers
        .iter()
        .map(|line| (line["allowed"] == true, line.get("over").is_some()))
        .collect();
    let expected = [(true, false), (true, false), (true, true), (false, false)];
    assert_eq!(told, expected);
}

#[test]
fn a_key_denied_too_often_is_blocked_for_a_while() {
    let trace = "{\"t\":0}\n{\"t\":0}\n{\"t\":0}\n{\"t\":1}\n{\"t\":60}\n";
    let limit = "fixed_window 1/s; penalty_box 2/10s for 1min";

    let answers = lines(&simulate(&["--limit", limit], trace));

    let allowed: Vec<_> = answers.iter().map(|line| line["allowed"] == true).collect();
    assert_eq!(allowed, [true, false, false, false, true]);
}

#[test]
fn a_limit_by_name_is_noted() {
    let output = simulate(&["--limit", "5/min; 9/h by tenant"], "{\"t\":0}\n");

    let notes = str::from_utf8(&output.stderr).unwrap();
    let note = "note: 5/min; 9/h by tenant: a limit by tenant is not simulated";
    assert!(notes.contains(note), "{notes}");
}

#[test]
fn options_without_effect_are_errors() {
    for option in [
        ["--seed", "1"],
        ["--hits", "9"],
        ["--connect-timeout", "1s"],
    ] {
        let output = simulate(&["--limit", "5/min", option[0], option[1]], "{\"t\":0}\n");
        assert!(!output.status.success(), "{option:?}");
    }
}
