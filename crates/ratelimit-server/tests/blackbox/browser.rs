//! Web pages in a real browser that attack a server on its machine.

use std::process::Command;

use ratelimit_tests::chaos::Certificates;
use serde_json::{Map, Value};

use crate::server::{CHECK, REMAINING, Server};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/attack.mjs");

/// The requests of a page of another site, as the access log shows them.
const REFUSED: [&str; 10] = [
    "GET check 403",
    "GET forward-auth 403",
    "GET check 403",
    "POST check 403",
    "POST check 403",
    "POST forward-auth 403",
    "POST refund 403",
    "OPTIONS check 403",
    "OPTIONS forward-auth 403",
    "OPTIONS reset 403",
];

/// The answers to the page of an attack, by call.
fn attack(args: &[&str]) -> Map<String, Value> {
    let ended = Command::new("node").arg(SCRIPT).args(args).output();
    let ended = ended.expect("node, which `cargo xtask test` installs");
    let told = String::from_utf8_lossy(&ended.stdout);
    let why = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{why}");
    serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}{why}"))
}

/// A server without a token, the easiest to attack, on which one key has spent 3 of 9.
async fn server(args: &[&str]) -> Server {
    let server = Server::start_admin(&[args, &["--policy", "p=fixed_window 9/d"]].concat());
    let spent = format!("{CHECK}?policy=p&key=spent&permits=3");
    assert_eq!(server.get(&spent).await.status, 200);
    server
}

async fn assert_nothing_changed(server: &Server) {
    for (key, remaining) in [("k", 9), ("spent", 6)] {
        let answer = server
            .get(&format!("{REMAINING}?policy=p&key={key}"))
            .await
            .json();
        assert_eq!(answer["remaining"], remaining, "{key}");
    }
}

#[tokio::test]
async fn a_page_whose_name_is_bound_to_loopback_can_neither_read_nor_change() {
    let server = server(&[]).await;

    let origin = format!("http://evil.example:{}", server.addr.port());
    let statuses = attack(&["rebound", &origin]);

    assert_eq!(statuses.len(), 9);
    for (call, status) in &statuses {
        assert_eq!(*status, 421, "{call}");
    }
    assert_nothing_changed(&server).await;
}

#[tokio::test]
async fn a_page_of_an_allowed_host_can_call() {
    let server = server(&["--allowed-host", "evil.example", "--console", "write"]).await;

    let origin = format!("http://evil.example:{}", server.addr.port());
    let statuses = attack(&["rebound", &origin]);

    for (call, status) in &statuses {
        assert_eq!(*status, 200, "{call}");
    }
}

/// Method, route and status of the requests that a foreign page has sent, from the access log.
fn requests_of_page(server: &Server) -> Vec<String> {
    let field = |line: &str, name: &str| {
        let (_, value) = line.split_once(&format!(" {name}=")).unwrap();
        let value = value.split(' ').next().unwrap().trim_matches('"');
        value.rsplit('/').next().unwrap().to_owned()
    };
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("access: request"));
    // The first request is the one of the test, before the attack.
    let lines = lines.skip(1);
    lines
        .map(|line| ["method", "route", "status"].map(|name| field(line, name)))
        .map(|words| words.join(" "))
        .collect()
}

#[tokio::test]
async fn forms_images_and_scripts_of_another_site_neither_spend_nor_reset() {
    let server = server(&["--log", "ratelimit_server::access=debug"]).await;

    let target = format!("http://{}", server.addr);
    let statuses = attack(&["foreign", "evil.example", &target]);

    assert_eq!(requests_of_page(&server), REFUSED);
    assert!(statuses.values().all(Value::is_null), "{statuses:?}");
    assert_nothing_changed(&server).await;
}

#[tokio::test]
async fn over_tls_another_site_neither_spends_nor_resets_beyond_loopback() {
    let certificates = Certificates::new();
    let [cert, key] = ["server.pem", "server.key"].map(|name| certificates.file(name));
    let server = Server::start(&[
        "--listen",
        "0.0.0.0:0",
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--policy",
        "p=fixed_window 9/d",
        "--log",
        "ratelimit_server::access=debug",
    ]);
    let port = server.addr.port();
    let remaining = || {
        let url = format!("https://127.0.0.1:{port}{REMAINING}?policy=p&key=k");
        let answer = Command::new("curl").args(["-sk", &url]).output().unwrap();
        let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
        answer["remaining"].clone()
    };
    assert_eq!(remaining(), 9);

    let target = format!("https://limits.example:{port}");
    let statuses = attack(&["foreign", "evil.example", &target]);

    assert_eq!(requests_of_page(&server), REFUSED);
    assert!(statuses.values().all(Value::is_null), "{statuses:?}");
    assert_eq!(remaining(), 9);
}

/// The requests of the other tests are not refused for another reason: a page of the same site can make them.
#[tokio::test]
async fn a_page_of_the_same_site_can_check_but_not_by_a_form() {
    let server = server(&["--log", "ratelimit_server::access=debug"]).await;

    let target = format!("http://localhost:{}", server.addr.port());
    let statuses = attack(&["foreign", "localhost", &target]);

    assert_eq!(
        requests_of_page(&server)[..7],
        [
            "GET check 200",
            "GET forward-auth 200",
            "GET check 200",
            "POST check 415",
            "POST check 415",
            "POST forward-auth 200",
            "POST refund 403",
        ]
    );
    assert!(statuses.values().all(Value::is_null), "{statuses:?}");
}
