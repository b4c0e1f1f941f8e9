//! The callers that may reset, refund, settle, explain and see offenders.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use http::{Method, StatusCode};
use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::server::{EXPLAIN, OFFENDERS, REFUND, RESET, SETTLE, Server, binary, until};

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

/// A request of a program or a proxy that sends no more headers than it must.
async fn status_of(server: &Server, version: &str, host: &str) -> u16 {
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    let request =
        format!("GET {OFFENDERS} HTTP/{version}\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer[9..12].parse().unwrap()
}

#[tokio::test]
async fn without_a_token_a_caller_needs_http_1_1_and_the_name_of_this_machine() {
    let server = Server::start(&["--admin-without-token", "--allowed-host", "limits.example"]);
    let addr = server.addr.to_string();

    for host in [
        &*addr,
        "localhost",
        "LOCALHOST.:1",
        "[::1]",
        "limits.example",
    ] {
        assert_eq!(status_of(&server, "1.1", host).await, 200, "{host}");
        assert_eq!(status_of(&server, "1.0", host).await, 403, "{host}");
    }
    assert_eq!(status_of(&server, "1.1", "a.localhost").await, 403);
    assert_eq!(status_of(&server, "1.1", "0.0.0.0").await, 421);
}

#[tokio::test]
async fn the_start_screen_prints_addresses_that_pass_and_warns_of_plain_http() {
    let token = token_file();
    let args = ["--admin-token-file", token.path().to_str().unwrap()];
    let server = Server::start(&[&args[..], &["--listen", "0.0.0.0:0"]].concat());

    let port = server.addr.port();
    for line in [
        format!("  listening  http://0.0.0.0:{port}\n"),
        format!("  console    http://127.0.0.1:{port}/console/\n"),
        format!("  metrics    http://127.0.0.1:{port}/actuator/prometheus\n"),
        format!("  try        curl -i 'http://127.0.0.1:{port}/"),
        "  warning    the console is served over plain http".to_owned(),
    ] {
        assert!(server.banner.contains(&line), "{line}: {}", server.banner);
    }
    until(async || server.log().contains("over plain http").then_some(())).await;
    for other in [&[][..], &["--listen", "0.0.0.0:0", "--console", "off"]] {
        let server = Server::start(&[&args[..], other].concat());
        assert!(!server.banner.contains("plain http"), "{}", server.banner);
    }
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
