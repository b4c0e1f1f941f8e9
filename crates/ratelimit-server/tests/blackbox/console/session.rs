//! Sessions: signing in and out, renewal, expiry, and wrong tokens.

use std::process::Command;

use http::Method;
use ratelimit_tests::chaos::Certificates;
use serde_json::{Value, json};

use super::{Console, SESSION, TOKEN, cookie_ending_in, cookie_of, cookie_of_span, write_token};
use crate::server::{OFFENDERS, Server, until};

#[tokio::test]
async fn signing_in_sets_a_cookie_and_tells_the_rights() {
    let console = Console::start(&[]);

    let answer = console.attempt(TOKEN).await;

    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap();
    let attributes: Vec<&str> = cookie.split("; ").skip(1).collect();
    assert_eq!(
        attributes,
        ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=1800"]
    );
    let session = answer.json();
    let expires_at = session["expiresAt"].as_u64().unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!((now + 1790..=now + 1800).contains(&expires_at));
    let expected = json!({
        "signedIn": true, "expiresAt": expires_at, "mode": "read", "can": ["look"], "keys": "digest",
    });
    assert_eq!(session, expected);
    let times = format!("{}.{expires_at}", expires_at - 1800);
    assert!(cookie.starts_with(&format!("ratelimit_console={times}.")));
    let again = console.ask(Method::GET, SESSION, &cookie_of(&answer)).await;
    assert_eq!(again.json(), expected);
    assert_eq!(again.header("cache-control"), Some("no-store"));
    assert!(!cookie.contains(TOKEN) && !answer.body.contains(TOKEN));
    assert!(!console.server.log().contains(TOKEN));
}

#[tokio::test]
async fn the_answer_tells_the_mode_and_how_keys_are_shown() {
    let console = Console::start(&["--console", "write", "--offender-keys", "shown"]);
    let signed_out = console.server.get(SESSION).await;
    let cookie = console.sign_in().await;

    let signed_in = console.ask(Method::GET, SESSION, &cookie).await;

    assert_eq!(signed_in.json()["mode"], "write");
    assert_eq!(signed_in.json()["can"], json!(["look", "reset", "reload"]));
    assert_eq!(signed_in.json()["keys"], "shown");
    let expected = json!({
        "signedIn": false, "expiresAt": null, "mode": "write", "can": [], "keys": "shown",
    });
    assert_eq!(signed_out.json(), expected);
}

#[tokio::test]
async fn signing_out_deletes_the_cookie() {
    let console = Console::start(&[]);
    let cookie = console.sign_in().await;

    let answer = console.ask(Method::DELETE, SESSION, &cookie).await;

    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["signedIn"], false);
    let cookies = answer.headers.get_all("set-cookie").iter();
    let cookies: Vec<&str> = cookies.map(|line| line.to_str().unwrap()).collect();
    let attributes = "HttpOnly; SameSite=Strict; Path=/; Max-Age=0";
    let expected = [
        format!("ratelimit_console=; {attributes}"),
        format!("__Host-ratelimit_console=; {attributes}; Secure"),
    ];
    assert_eq!(cookies, expected);
}

#[tokio::test]
async fn a_session_ends_and_is_renewed_in_its_second_half() {
    let console = Console::start(&[]);
    let find = async |cookie: &str| console.ask(Method::GET, SESSION, cookie).await;

    for ended in [0, -1, -100_000] {
        let cookie = cookie_ending_in(ended, TOKEN);
        assert_eq!(find(&cookie).await.json()["signedIn"], false, "{ended}");
        console
            .ask(Method::GET, OFFENDERS, &cookie)
            .await
            .problem(401);
    }
    let first_half = find(&cookie_ending_in(1_000, TOKEN)).await;
    assert_eq!(first_half.json()["signedIn"], true);
    assert_eq!(first_half.header("set-cookie"), None);

    let second_half = find(&cookie_ending_in(800, TOKEN)).await;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let expires_at = second_half.json()["expiresAt"].as_u64().unwrap();
    assert!(expires_at >= now + 1_790, "{second_half:?}");
    let renewed = find(&cookie_of(&second_half)).await;
    assert_eq!(renewed.json()["expiresAt"], expires_at);
}

#[tokio::test]
async fn no_session_is_renewed_beyond_twelve_hours() {
    const HOUR: i64 = 60 * 60;
    let console = Console::start(&[]);
    let find = async |start: i64, end: i64| {
        let cookie = cookie_of_span(start, end, TOKEN);
        console.ask(Method::GET, SESSION, &cookie).await
    };
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();

    let last = find(-12 * HOUR + 1_200, 300).await;
    let expires_at = last.json()["expiresAt"].as_u64().unwrap();
    assert!((now + 1_200..now + 1_210).contains(&expires_at), "{last:?}");
    let cookie = last.header("set-cookie").unwrap();
    let (_, max_age) = cookie.split_once("Max-Age=").unwrap();
    assert!((1_190..=1_200).contains(&max_age.parse::<u64>().unwrap()));

    let ended = find(-12 * HOUR + 300, 300).await;
    assert_eq!(ended.json()["signedIn"], true);
    assert_eq!(ended.header("set-cookie"), None);
}

#[tokio::test]
async fn a_wrong_bearer_token_is_refused_counted_and_logged() {
    let console = Console::start(&["--trusted", "127.0.0.1"]);
    let ask = async |path: &str, client: &str, authorization: &str| {
        let request = console.server.request(Method::GET, path);
        let request = request.header("x-forwarded-for", client);
        let request = request.header("authorization", authorization);
        console.server.send(request, "").await
    };
    let right = format!("Bearer {TOKEN}");

    for (client, path) in [("203.0.113.7", SESSION), ("203.0.113.8", OFFENDERS)] {
        for _ in 0..5 {
            ask(path, client, "Bearer guess").await.problem(401);
        }
        let refused = ask(path, client, "bearer guess").await;
        assert!(refused.problem(429).contains("bearer"), "{refused:?}");
        assert!(refused.header("retry-after").is_some());
        // Programs go on, and other schemes are no guesses.
        assert_eq!(ask(path, client, &right).await.status, 200);
        let other_scheme = ask(path, client, "Basic Z3Vlc3M6").await;
        let expected = if path == SESSION { 200 } else { 401 };
        assert_eq!(other_scheme.status, expected);
    }
    // The page has the same budget, and a browser may send a token that is for a proxy.
    let request = console.server.request(Method::POST, SESSION);
    let request = request.header("x-forwarded-for", "203.0.113.8");
    let request = request.header("content-type", "application/json");
    let body = json!({ "token": TOKEN }).to_string();
    console.server.send(request, body).await.problem(429);
    let cookie = console.sign_in().await;
    let request = console.page(Method::GET, OFFENDERS, &cookie);
    let request = request.header("authorization", "Bearer of-a-proxy");
    assert_eq!(console.server.send(request, "").await.status, 200);

    let log = console.server.log();
    assert!(log.contains("this is not the admin token"), "{log}");
}

#[tokio::test]
async fn a_new_token_ends_all_sessions() {
    let console = Console::start(&[]);
    let cookie = console.sign_in().await;
    let is_signed_in = async || {
        let session = console.ask(Method::GET, SESSION, &cookie).await.json();
        session["signedIn"].as_bool().unwrap()
    };
    assert!(is_signed_in().await);

    console.replace_token("fedcba9876543210-other");
    until(async || (!is_signed_in().await).then_some(())).await;

    let refused = console.ask(Method::GET, OFFENDERS, &cookie).await;
    refused.problem(401);
    console.attempt(TOKEN).await.problem(401);
    let answer = console.attempt("fedcba9876543210-other").await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn servers_with_one_token_accept_each_others_sessions() {
    let (one, other) = (Console::start(&[]), Console::start(&[]));
    let cookie = one.sign_in().await;

    let session = other.ask(Method::GET, SESSION, &cookie).await;

    assert_eq!(session.json()["signedIn"], true);
    // Another purpose or another token makes another key.
    let forged = cookie_ending_in(1_000, "another token of it");
    let session = other.ask(Method::GET, SESSION, &forged).await;
    assert_eq!(session.json()["signedIn"], false);
}

#[tokio::test]
async fn five_wrong_tokens_a_minute_block_their_address_and_no_other() {
    let console = Console::start(&["--trusted", "127.0.0.1"]);
    let attempt = async |client: &str, token: &str| {
        let request = console.server.request(Method::POST, SESSION);
        let request = request.header("content-type", "application/json");
        let request = request.header("x-forwarded-for", client);
        let body = json!({ "token": token }).to_string();
        console.server.send(request, body).await
    };
    let metrics = async || console.server.get("/actuator/prometheus").await.body;

    for wrong in ["", "x", "0123456789abcdef-secres", &"x".repeat(9_999), "\0"] {
        let refused = attempt("203.0.113.7", wrong).await;
        refused.problem(401);
        assert_eq!(refused.header("set-cookie"), None);
    }
    for token in ["x", TOKEN] {
        let refused = attempt("203.0.113.7", token).await;
        refused.problem(429);
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
        assert_eq!(refused.header("set-cookie"), None);
    }
    for other in ["203.0.113.8", "2001:db8::1"] {
        assert_eq!(attempt(other, TOKEN).await.status, 200, "{other}");
    }
    // A client has a whole /64 to choose addresses from.
    for last in 1..=5 {
        let refused = attempt(&format!("2001:db8:1::{last}"), "x").await;
        refused.problem(401);
    }
    attempt("2001:db8:1::99", TOKEN).await.problem(429);

    let log = console.server.log();
    let refusals = log.matches("refused an admin call").count();
    assert_eq!(refusals, 1, "{log}");
    assert!(log.contains("this is not the admin token"), "{log}");
    assert!(!log.contains(TOKEN), "{log}");
    // The attempts are no checks of a policy.
    let metrics = metrics().await;
    assert!(!metrics.contains("console-sign-in"), "{metrics}");
}

#[tokio::test]
async fn right_tokens_do_not_count_as_attempts() {
    let console = Console::start(&[]);

    for _ in 0..12 {
        console.sign_in().await;
    }

    let log = console.server.log();
    assert_eq!(log.matches("call=\"sign-in\"").count(), 12, "{log}");
}

#[tokio::test]
async fn a_sign_in_is_a_json_object_with_the_token() {
    let console = Console::start(&[]);
    let body = json!({ "token": TOKEN }).to_string();

    for content_type in ["text/plain", "application/x-www-form-urlencoded"] {
        let request = console.server.request(Method::POST, SESSION);
        let request = request.header("content-type", content_type);
        let answer = console.server.send(request, body.clone()).await;
        answer.problem(415);
    }
    for wrong in [
        "",
        "{}",
        "[\"t\"]",
        r#"{"token":1}"#,
        r#"{"token":"t","x":1}"#,
    ] {
        console.server.post(SESSION, wrong).await.problem(400);
    }
    let huge = json!({ "token": "x".repeat(2 << 20) }).to_string();
    console.server.post(SESSION, huge).await.problem(413);
}

#[tokio::test]
async fn where_no_token_is_needed_the_page_is_signed_in_without_a_cookie() {
    let server = Server::start(&["--admin-without-token", "--console", "write"]);
    let expected = json!({
        "signedIn": true, "expiresAt": null, "mode": "write", "can": ["look", "reset", "reload"],
        "keys": "digest",
    });

    let found = server.get(SESSION).await;
    let signed_in = server.post(SESSION, r#"{"token":"any"}"#).await;
    let proxied = server.request(Method::GET, SESSION);
    let proxied = proxied.header("x-forwarded-for", "203.0.113.7");
    let proxied = server.send(proxied, "").await;

    for answer in [found, signed_in] {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json(), expected);
        assert_eq!(answer.header("set-cookie"), None);
    }
    assert_eq!(proxied.json()["signedIn"], false);
    assert_eq!(proxied.json()["can"], json!([]));
}

/// The header lines and the body of a sign-in by curl.
fn sign_in_by_curl(url: &str, args: &[&str]) -> String {
    let body = json!({ "token": TOKEN }).to_string();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--include", "--max-time", "30", "--data", &body]);
    curl.args(["--header", "content-type: application/json"]);
    let answered = curl.args(args).arg(format!("{url}{SESSION}")).output();
    String::from_utf8(answered.unwrap().stdout).unwrap()
}

#[tokio::test]
async fn over_https_the_cookie_is_secure_and_belongs_to_the_host() {
    let certificates = Certificates::new();
    let [cert, key, ca] =
        ["server.pem", "server.key", "root.pem"].map(|name| certificates.file(name));
    let console = Console::start(&["--tls-cert", &cert, "--tls-key", &key]);
    let url = format!("https://localhost:{}", console.server.addr.port());

    let answer = sign_in_by_curl(&url, &["--cacert", &ca]);

    let line = answer.lines().find(|line| line.starts_with("set-cookie: "));
    let cookie = line.unwrap().trim_start_matches("set-cookie: ").trim_end();
    assert!(cookie.starts_with("__Host-ratelimit_console="), "{cookie}");
    assert!(
        cookie.ends_with("; Path=/; Max-Age=1800; Secure"),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().unwrap();
    let found = Command::new("curl")
        .args(["--silent", "--max-time", "30", "--cacert", &ca])
        .args(["--cookie", cookie, &format!("{url}{SESSION}")])
        .output();
    let session: Value = serde_json::from_slice(&found.unwrap().stdout).unwrap();
    assert_eq!(session["signedIn"], true);
    // A page of plain http on this host can set the other name.
    let planted = cookie.trim_start_matches("__Host-");
    let found = Command::new("curl")
        .args(["--silent", "--max-time", "30", "--cacert", &ca])
        .args(["--cookie", planted, &format!("{url}{SESSION}")])
        .output();
    let session: Value = serde_json::from_slice(&found.unwrap().stdout).unwrap();
    assert_eq!(session["signedIn"], false);
    // curl shows one in ten refusals as a broken stream if the server drops the body unread.
    for (scheme, status) in [("http", "403"), ("https", "200")].repeat(20) {
        let origin = format!("origin: {}", url.replace("https", scheme));
        let answer = sign_in_by_curl(&url, &["--cacert", &ca, "--header", &origin]);
        assert!(
            answer.contains(&format!(" {status} ")),
            "{origin}: {answer}"
        );
    }
    assert!(
        console
            .server
            .banner
            .contains("console    https://127.0.0.1:")
    );
}

#[tokio::test]
async fn behind_a_trusted_proxy_that_ends_tls_the_cookie_is_secure() {
    let dir = tempfile::TempDir::new().unwrap();
    let token = write_token(&dir, TOKEN);
    for (trusted, is_secure) in [("127.0.0.1", true), ("10.0.0.1", false)] {
        let server = Server::start(&["--admin-token-file", &token, "--trusted", trusted]);
        let url = format!("http://{}", server.addr);

        let args = ["--header", "x-forwarded-proto: https"];
        let answer = sign_in_by_curl(&url, &args);

        let is_host_cookie = answer.contains("set-cookie: __Host-ratelimit_console=");
        assert_eq!(is_host_cookie, is_secure, "{answer}");
        assert_eq!(answer.contains("; Secure"), is_secure, "{answer}");
    }
}
