//! The published vectors, replayed through `client-key`.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    process::{Command, Output},
};

use serde_json::Value;

use crate::server::binary;

#[test]
fn every_vector_gets_the_key_it_expects() {
    let vectors = include_str!("../../../../tests/data/client_key.json");
    assert_eq!(replay(vectors), 192);
}

#[test]
fn every_further_vector_gets_the_key_it_expects() {
    let vectors = include_str!("../../../../tests/data/client_key_more.json");
    // No argument of a program can hold the NUL that one of them needs.
    let all = serde_json::from_str::<Value>(vectors).unwrap()["vectors"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(replay(vectors), all - 1);
}

fn replay(text: &str) -> usize {
    let file: Value = serde_json::from_str(text).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    let asked = vectors
        .iter()
        .filter(|vector| !vector.to_string().contains("\\u0000"));
    asked
        .map(|vector| {
            let output = command(vector).output().unwrap();
            let found: Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|why| panic!("{vector}: {why}: {output:?}"));
            assert_eq!(found, vector["expect"], "{vector}");
            assert!(output.status.success(), "{vector}");
        })
        .count()
}

fn command(vector: &Value) -> Command {
    let mut command = binary();
    command.arg("client-key");
    for network in vector["trusted"].as_array().unwrap() {
        command.args(["--trusted", network.as_str().unwrap()]);
    }
    if let Some(peer) = vector["peer"].as_str() {
        command.args(["--peer", peer]);
    }
    for line in vector["headers"].as_array().unwrap() {
        let mut bytes = format!("{}: ", line[0].as_str().unwrap()).into_bytes();
        let value = line[1].as_str().unwrap().chars();
        bytes.extend(value.map(|char| u8::try_from(char).unwrap()));
        command.arg("--header").arg(OsString::from_vec(bytes));
    }
    if let Some(query) = vector["query"].as_str() {
        command.args(["--query", query]);
    }
    let options = &vector["opts"];
    for (name, flag) in [
        ("chain_header", "--chain-header"),
        ("hops", "--hops"),
        ("max_hops", "--max-hops"),
        ("v6_prefix", "--ipv6-prefix"),
    ] {
        match &options[name] {
            Value::Null => {}
            Value::String(text) => drop(command.args([flag, text])),
            other => drop(command.args([flag, &other.to_string()])),
        }
    }
    if options["real_ip_fallback"] == false {
        command.arg("--no-real-ip");
    }
    if options["trust_unix"] == true {
        command.arg("--trust-unix");
    }
    for (name, flag) in [
        ("value", "--explicit"),
        ("header", "--explicit-header"),
        ("query", "--explicit-query"),
    ] {
        if let Some(text) = options["explicit"][name].as_str() {
            command.args([flag, text]);
        }
    }
    command
}

fn ask(args: &[&str]) -> Output {
    binary().arg("client-key").args(args).output().unwrap()
}

#[test]
fn the_answer_is_one_line_of_json() {
    let found = ask(&[
        "--trusted",
        "10.0.0.0/8",
        "--peer",
        "10.0.0.1:4711",
        "--header",
        "X-Forwarded-For: 1.2.3.4",
    ]);
    let refused = ask(&["--trusted", "0.0.0.0/0", "--peer", "10.0.0.1:4711"]);

    assert_eq!(
        found.stdout,
        b"{\"key\":\"ip:1.2.3.4\",\"source\":\"xff\"}\n"
    );
    assert_eq!(refused.stdout, b"{\"error\":\"bad_config\"}\n");
    assert!(refused.status.success());
}

#[test]
fn bytes_that_are_not_utf8_are_kept() {
    let line = OsString::from_vec(b"X-Forwarded-For: \xff, 203.0.113.7".to_vec());

    let found = binary()
        .args([
            "client-key",
            "--trusted",
            "10.0.0.0/8",
            "--peer",
            "10.0.0.1:1",
            "--header",
        ])
        .arg(line)
        .output()
        .unwrap();

    assert_eq!(
        found.stdout,
        b"{\"key\":\"ip:203.0.113.7\",\"source\":\"xff\"}\n"
    );
}

#[test]
fn numbers_that_are_none_are_bad_configuration() {
    for (flag, value) in [
        ("--hops", "-1"),
        ("--max-hops", "many"),
        ("--ipv6-prefix", "129"),
        ("--ipv6-prefix", "300"),
    ] {
        let answer = ask(&["--peer", "10.0.0.1:1", flag, value]);
        assert_eq!(
            answer.stdout, b"{\"error\":\"bad_config\"}\n",
            "{flag} {value}"
        );
    }
}

#[test]
fn a_command_that_cannot_be_read_ends_with_two() {
    for args in [
        &["--peer", "nowhere"][..],
        &["--header", "no colon"],
        &["--unknown"],
    ] {
        assert_eq!(ask(args).status.code(), Some(2), "{args:?}");
    }
}
