//! The callers that may reset, refund, settle, explain and see offenders.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use http::{Method, StatusCode};
use tempfile::NamedTempFile;

use crate::server::{EXPLAIN, OFFENDERS, REFUND, RESET, SETTLE, Server, binary};

const TOKEN: &str = "0123456789abcdef-secret";

fn token_file() -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "{TOKEN}").unwrap();
    file
}

#[tokio::test]
async fn admin_without_token_is_for_direct_local_callers() {
    let server = Server::start(&["--admin-without-token"]);
    let with = |name: &str| {
        let request = server.request(Method::DELETE, &format!("{RESET}?key=k"));
        request.header(name, "203.0.113.7")
    };

    assert_eq!(
        server.delete(&format!("{RESET}?key=k")).await.status,
        StatusCode::OK
    );
    for name in [
        "x-forwarded-for",
        "forwarded",
        "x-real-ip",
        "via",
        "x-forwarded-proto",
    ] {
        server.send(with(name), "").await.problem(403);
    }
    assert!(server.banner.contains("direct callers on this machine"));
}

#[tokio::test]
async fn the_chain_header_counts_as_a_forwarding_header() {
    let server = Server::start(&[
        "--admin-without-token",
        "--trusted",
        "10.0.0.1",
        "--chain-header",
        "cf-connecting-ip",
    ]);

    let request = server.request(Method::GET, &format!("{EXPLAIN}?key=k"));
    let answer = server
        .send(request.header("cf-connecting-ip", "203.0.113.7"), "")
        .await;

    answer.problem(403);
}

#[tokio::test]
async fn beyond_loopback_without_a_token_they_are_off() {
    let server = Server::start(&["--listen", "0.0.0.0:0"]);

    server.delete(&format!("{RESET}?key=k")).await.problem(403);
    server.get(&format!("{EXPLAIN}?key=k")).await.problem(403);
    server.get(OFFENDERS).await.problem(403);
    for path in [REFUND, SETTLE] {
        server.post(path, "{}").await.problem(403);
    }

    let off = "reset, refund, settle, explain and offenders are off";
    assert!(server.banner.contains(off));
    assert!(server.banner.contains("warning"));
    assert!(server.log().contains("without an admin token"));
}

#[tokio::test]
async fn without_a_token_they_are_off_on_this_machine_too() {
    let server = Server::start(&[]);

    for path in [EXPLAIN, OFFENDERS] {
        server.get(&format!("{path}?key=k")).await.problem(403);
    }
    server.delete(&format!("{RESET}?key=k")).await.problem(403);
    for path in [REFUND, SETTLE] {
        server.post(path, "{}").await.problem(403);
    }
    let off = "reset, refund, settle, explain and offenders are off";
    assert!(server.banner.contains(off));
}

#[test]
fn admin_without_token_is_refused_beyond_loopback_and_beside_a_token() {
    let file = token_file();
    let token = file.path().to_str().unwrap();
    for (args, expected) in [
        (
            &["--listen", "0.0.0.0:0"][..],
            "needs a loopback address, and admin calls are served on 0.0.0.0:0",
        ),
        (&["--admin-listen", "[::]:0"], "served on [::]:0"),
        (
            &["--admin-token-file", token],
            "has no effect beside admin-token-file",
        ),
    ] {
        let mut command = binary();
        let ended = command.arg("--admin-without-token").args(args).output();
        let ended = ended.unwrap();
        let why = String::from_utf8(ended.stderr).unwrap();
        assert!(
            !ended.status.success() && why.contains(expected),
            "{args:?}: {why}"
        );
    }
    let args = ["--listen", "0.0.0.0:0", "--admin-listen", "127.0.0.1:0"];
    Server::start(&[&args[..], &["--admin-without-token"]].concat());
}

#[tokio::test]
async fn on_a_terminal_a_token_is_made_and_shown_with_a_command_that_uses_it() {
    // `script` gives the server a terminal.
    let server = Server::start_with(&[], |command| {
        let mut line: Vec<_> = vec![command.get_program().to_owned()];
        line.extend(command.get_args().map(ToOwned::to_owned));
        let line: Vec<_> = line.iter().map(|word| word.to_str().unwrap()).collect();
        let mut script = Command::new("script");
        // The server takes the hang-up of its terminal for a reload, so it has to be ended with `script`.
        let line = format!("exec setpriv --pdeathsig KILL {}", line.join(" "));
        script.args(["-qfec", &line, "/dev/null"]);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        *command = script;
    });
    let mut lines = server.banner.lines().map(str::trim);
    let typed = lines.find(|line| line.starts_with("curl -H")).unwrap();

    let called = Command::new("sh")
        .args([
            "-c",
            &format!("{typed} -s -o /dev/null -w '%{{http_code}}'"),
        ])
        .output()
        .unwrap();
    assert_eq!(str::from_utf8(&called.stdout), Ok("200"), "{typed}");
    server.get(OFFENDERS).await.problem(401);
    let token = typed.split("Bearer ").nth(1).unwrap().split('\'').next();
    let token = token.unwrap();
    assert_eq!(token.len(), 32);
    let console = format!("console    http://{}/console/#token={token}", server.addr);
    assert!(server.banner.contains(&console), "{}", server.banner);
    let body = format!(r#"{{"token":"{token}"}}"#);
    let signed_in = server.post("/console/api/session", body).await;
    assert_eq!(signed_in.json()["signedIn"], true, "{signed_in:?}");
}

#[tokio::test]
async fn with_a_token_it_is_needed_even_on_this_machine() {
    let file = token_file();
    let server = Server::start(&["--admin-token-file", file.path().to_str().unwrap()]);
    let with = |value: &str| {
        let request = server.request(Method::DELETE, &format!("{RESET}?key=k"));
        request.header("authorization", value)
    };

    let without = server.delete(&format!("{RESET}?key=k")).await;
    without.problem(401);
    assert_eq!(without.header("www-authenticate"), Some("Bearer"));
    server.get(OFFENDERS).await.problem(401);
    for path in [REFUND, SETTLE] {
        server.post(path, "{}").await.problem(401);
    }
    for wrong in [
        "Bearer wrong",
        "Basic x",
        "Bearer",
        &format!("Bearer {TOKEN}x"),
        TOKEN,
    ] {
        server.send(with(wrong), "").await.problem(401);
    }
    let twice = with(&format!("Bearer {TOKEN}")).header("authorization", "Bearer x");
    server.send(twice, "").await.problem(401);
    let right = server.send(with(&format!("bearer {TOKEN}")), "").await;
    assert_eq!(right.status, StatusCode::OK);
    let proxied = with(&format!("Bearer {TOKEN}")).header("x-forwarded-for", "203.0.113.7");
    assert_eq!(server.send(proxied, "").await.status, StatusCode::OK);
    assert!(!server.log().contains(TOKEN) && !server.banner.contains(TOKEN));
}
