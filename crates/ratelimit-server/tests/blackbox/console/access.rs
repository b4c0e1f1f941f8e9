//! Access: who may call, with what headers, by what name, and in which mode.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::Command,
};

use http::{Method, StatusCode};

use super::{Console, SESSION, TOKEN, cookie_ending_in, with_host};
use crate::server::{CHECK, EXPLAIN, OFFENDERS, REFUND, REMAINING, RESET, SETTLE, Server, binary};

const POLICY: [&str; 2] = ["--policy", "p=fixed_window 9/d"];
const QUERY: &str = "policy=p&key=k";

/// Spends one unit of the key.
async fn spend(server: &Server) {
    let answer = server.get(&format!("{CHECK}?{QUERY}")).await;
    assert_eq!(answer.status, 200);
}

async fn remaining(server: &Server) -> u64 {
    let answer = server.get(&format!("{REMAINING}?{QUERY}")).await;
    answer.json()["remaining"].as_u64().unwrap()
}

#[tokio::test]
async fn a_session_reads_and_changes_nothing_by_default() {
    let console = Console::start(&POLICY);
    let server = &console.server;
    let cookie = console.sign_in().await;
    spend(server).await;

    for path in [&format!("{EXPLAIN}?{QUERY}"), OFFENDERS] {
        let answer = console.ask(Method::GET, path, &cookie).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    let reset = format!("{RESET}?{QUERY}");
    let refused = console.ask(Method::DELETE, &reset, &cookie).await;
    assert!(refused.problem(403).contains("--console write"));
    for path in [REFUND, SETTLE] {
        let request = console.page(Method::POST, path, &cookie);
        let request = request.header("content-type", "application/json");
        server.send(request, "{}").await.problem(403);
    }
    assert_eq!(remaining(server).await, 8);

    let request = server.request(Method::DELETE, &reset);
    let request = request.header("authorization", format!("Bearer {TOKEN}"));
    assert_eq!(server.send(request, "").await.status, StatusCode::OK);
    assert_eq!(remaining(server).await, 9);
    let log = server.log();
    // The page repeats such calls every few seconds.
    assert!(!log.contains("call=\"explain\" by=\"console\""), "{log}");
    assert!(log.contains("call=\"reset\" by=\"token\""), "{log}");
    assert!(!log.contains("call=\"reset\" by=\"console\""), "{log}");
}

#[tokio::test]
async fn in_write_mode_a_session_resets() {
    let logged = [
        "--console",
        "write",
        "--log",
        "ratelimit_server::audit=debug",
    ];
    let console = Console::start(&[&POLICY[..], &logged].concat());
    let cookie = console.sign_in().await;
    spend(&console.server).await;

    let path = format!("{RESET}?{QUERY}");
    let answer = console.ask(Method::DELETE, &path, &cookie).await;
    let explain = format!("{EXPLAIN}?{QUERY}");
    assert_eq!(
        console.ask(Method::GET, &explain, &cookie).await.status,
        200
    );

    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(remaining(&console.server).await, 9);
    let log = console.server.log();
    assert!(log.contains("call=\"reset\" by=\"console\""), "{log}");
    assert!(log.contains("call=\"explain\" by=\"console\""), "{log}");
}

#[tokio::test]
async fn hostile_cookies_are_no_session() {
    let console = Console::start(&[]);
    let good = console.sign_in().await;
    let (name, value) = good.split_once('=').unwrap();
    let (times, code) = value.rsplit_once('.').unwrap();
    let (start, expiry) = times.split_once('.').unwrap();
    let ask = async |cookies: &[&str]| {
        let mut request = console.server.request(Method::GET, OFFENDERS);
        for cookie in cookies {
            request = request.header("cookie", *cookie);
        }
        console.server.send(request, "").await.status.as_u16()
    };
    let wrong = format!("{name}={times}.{}", "0".repeat(64));
    let later = expiry.parse::<u64>().unwrap() + 1;
    let later = format!("{name}={start}.{later}.{code}");
    let planted = vec![&*wrong; 60].join("; ");
    let huge = format!("{name}={}", "9".repeat(40_000));
    let many = vec!["a=b"; 80].join("; ");

    for cookies in [
        &["ratelimit_console"][..],
        &["ratelimit_console="],
        &["=", ";;;", "="],
        &[value],
        &[&format!("x{good}")],
        &[&format!("{name}x={value}")],
        &[&format!("{name}=\"{value}\"")],
        &[&wrong],
        &[&later],
        &[&huge],
        &[&cookie_ending_in(1_000, "another token of it")],
        &[&cookie_ending_in(-1, TOKEN)],
        &[&format!("__Host-{good}")],
    ] {
        assert_eq!(ask(cookies).await, 401, "{cookies:?}");
    }
    for cookies in [
        &[&*good][..],
        &["a=b", &good],
        &[&good, &wrong],
        &[&wrong, &good],
        &[&format!("{wrong}; {good}")],
        &[&huge, &good],
        &[&format!("{many}; {good}")],
        &[&format!("{planted}; {good}")],
    ] {
        assert_eq!(ask(cookies).await, 200, "{cookies:?}");
    }
}

#[tokio::test]
async fn a_cookie_counts_for_calls_of_the_own_origin_only() {
    let console = Console::start(&[&POLICY[..], &["--console", "write"]].concat());
    let server = &console.server;
    let cookie = console.sign_in().await;
    let own = format!("http://{}", server.addr);
    let other_port = "http://127.0.0.1:1";
    let other_name = format!("http://localhost:{}", server.addr.port());
    let over_tls = format!("https://{}", server.addr);
    let ask = async |method: Method, headers: &[(&str, &str)]| {
        let path = match method {
            Method::DELETE => format!("{RESET}?{QUERY}"),
            _ => format!("{EXPLAIN}?{QUERY}"),
        };
        let mut request = server.request(method, &path).header("cookie", &cookie);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        server.send(request, "").await.status.as_u16()
    };
    let site = "sec-fetch-site";

    // The statuses of a call that reads, and of one that changes.
    for (headers, read, change) in [
        (&[(site, "same-origin")][..], 200, 200),
        (&[(site, "same-origin"), ("origin", &own)], 200, 200),
        (&[(site, "none")], 200, 403),
        (&[(site, "same-site")], 403, 403),
        (&[(site, "cross-site")], 403, 403),
        (&[(site, "")], 403, 403),
        (&[(site, "same-origin"), (site, "cross-site")], 403, 403),
        (&[(site, "cross-site"), (site, "same-origin")], 403, 403),
        (&[], 200, 403),
        (&[("origin", &own)], 200, 200),
        // A proxy may have ended TLS.
        (&[("origin", &over_tls)], 200, 200),
        (&[("origin", other_port)], 403, 403),
        (&[("origin", &other_name)], 403, 403),
        (&[("origin", "null")], 403, 403),
        (&[("origin", "")], 403, 403),
        (&[("origin", &own), ("origin", &own)], 403, 403),
        (&[("origin", "ftp://127.0.0.1")], 403, 403),
    ] {
        assert_eq!(ask(Method::GET, headers).await, read, "{headers:?}");
        assert_eq!(ask(Method::DELETE, headers).await, change, "{headers:?}");
    }
    let request = console.page(Method::DELETE, &format!("{RESET}?{QUERY}"), &cookie);
    let request = request.header("content-type", "text/plain");
    server.send(request, "body").await.problem(415);
}

#[tokio::test]
async fn calls_of_other_sites_and_of_other_origins_of_the_site_are_refused() {
    let console = Console::start(&[]);
    let server = &console.server;
    let bearer = format!("Bearer {TOKEN}");

    for site in ["cross-site", "same-site", "unknown"] {
        for path in [OFFENDERS, SESSION, "/console/", "/console/console.js"] {
            let request = server.request(Method::GET, path);
            let request = request.header("authorization", &bearer);
            let answer = server
                .send(request.header("sec-fetch-site", site), "")
                .await;
            answer.problem(403);
        }
        let request = server.request(Method::POST, SESSION);
        let request = request.header("content-type", "application/json");
        let request = request.header("sec-fetch-site", site);
        let body = format!(r#"{{"token":"{TOKEN}"}}"#);
        let answer = server.send(request, body).await;
        answer.problem(403);
        assert_eq!(answer.header("set-cookie"), None);
    }
    for (method, body) in [
        (Method::POST, format!(r#"{{"token":"{TOKEN}"}}"#)),
        (Method::DELETE, String::new()),
    ] {
        let request = server.request(method, SESSION);
        let request = request.header("content-type", "application/json");
        let request = request.header("origin", "http://evil.example");
        server.send(request, body).await.problem(403);
    }
    for site in ["same-origin", "none"] {
        let request = server.request(Method::GET, OFFENDERS);
        let request = request.header("authorization", &bearer);
        let answer = server
            .send(request.header("sec-fetch-site", site), "")
            .await;
        assert_eq!(answer.status, 200, "{site}");
    }
}

#[tokio::test]
async fn a_link_on_another_page_opens_the_page_and_nothing_else() {
    let console = Console::start(&[]);
    let visit = async |path: &str, mode: &str, target: &str| {
        let request = console.server.request(Method::GET, path);
        let request = request
            .header("sec-fetch-site", "cross-site")
            .header("sec-fetch-mode", mode)
            .header("sec-fetch-dest", target);
        console.server.send(request, "").await.status.as_u16()
    };

    assert_eq!(visit("/console/", "navigate", "document").await, 200);
    assert_eq!(visit("/console", "navigate", "document").await, 307);
    assert_eq!(visit("/console/", "navigate", "iframe").await, 403);
    assert_eq!(visit("/console/", "no-cors", "script").await, 403);
    for path in [SESSION, OFFENDERS, CHECK, "/console/console.js"] {
        assert_eq!(visit(path, "navigate", "document").await, 403, "{path}");
    }
}

#[tokio::test]
async fn a_rebound_name_gets_421_on_every_listener() {
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let console = Console::start(&["--listen", listen, "--allowed-host", "limits.example"]);
        let server = &console.server;
        let status = async |path: &str, host: &str| {
            let answer = with_host(server, path, host).await;
            answer[9..12].parse::<u16>().unwrap()
        };

        for path in [
            "/console",
            "/console/",
            "/console/api.js",
            SESSION,
            "/console/x",
        ] {
            for host in ["evil.example", "localhost.evil.example", "evillocalhost"] {
                assert_eq!(status(path, host).await, 421, "{listen} {path} {host}");
            }
        }
        for host in [
            "127.0.0.1:80",
            "localhost",
            "limits.localhost:80",
            "Limits.Example",
        ] {
            assert_eq!(status("/console/", host).await, 200, "{listen} {host}");
            assert_eq!(status(OFFENDERS, host).await, 401, "{listen} {host}");
        }
    }
}

#[tokio::test]
async fn the_console_that_is_off_is_an_unknown_path() {
    let off = Console::start(&["--console", "off"]);
    let without_access = Server::start(&[]);

    for server in [&off.server, &without_access] {
        let unknown = server.get("/nothing").await;
        unknown.problem(404);
        for path in [
            "/console",
            "/console/",
            "/console/api.js",
            SESSION,
            "/console/api/live",
        ] {
            let answer = server.get(path).await;
            assert_eq!(answer.problem(404), unknown.problem(404), "{path}");
            assert_eq!(answer.header("content-security-policy"), None);
        }
        assert!(!server.banner.contains("console"), "{}", server.banner);
    }
    // A cookie that another server made is none here.
    let cookie = cookie_ending_in(1_000, TOKEN);
    off.ask(Method::GET, OFFENDERS, &cookie).await.problem(401);
}

#[tokio::test]
async fn where_no_token_is_needed_a_browser_reads_and_a_program_changes() {
    let server = Server::start(&[&POLICY[..], &["--admin-without-token"]].concat());
    let reset = format!("{RESET}?{QUERY}");
    let own = format!("http://{}", server.addr);
    let by_browser = async |method: Method, path: &str, name: &str, value: &str| {
        let request = server.request(method, path).header(name, value);
        server.send(request, "").await.status.as_u16()
    };
    let (site, origin) = ("sec-fetch-site", "origin");

    assert_eq!(
        by_browser(Method::GET, OFFENDERS, site, "same-origin").await,
        200
    );
    assert_eq!(
        by_browser(Method::DELETE, &reset, site, "same-origin").await,
        403
    );
    assert_eq!(by_browser(Method::DELETE, &reset, origin, &own).await, 403);
    assert_eq!(
        by_browser(Method::GET, OFFENDERS, origin, "http://localhost:1").await,
        403
    );
    assert_eq!(
        by_browser(Method::GET, OFFENDERS, site, "same-site").await,
        403
    );
    assert_eq!(server.delete(&reset).await.status, 200);
    let log = server.log();
    assert!(log.contains("call=\"reset\" by=\"local\""), "{log}");

    let args = ["--admin-without-token", "--console", "write"];
    let server = Server::start(&[&POLICY[..], &args].concat());
    let request = server.request(Method::DELETE, &reset);
    let answer = server.send(request.header(site, "same-origin"), "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(server.log().contains("call=\"reset\" by=\"console\""));
}

/// The status of a GET on a connection of its own.
fn status_at(addr: SocketAddr, path: &str) -> u16 {
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer[9..12].parse().unwrap()
}

#[tokio::test]
async fn with_an_admin_listener_the_console_is_there_only() {
    let console = Console::start(&["--admin-listen", "127.0.0.1:0"]);
    let server = &console.server;
    let (_, url) = server.banner.split_once("console    http://").unwrap();
    let admin: SocketAddr = url.split('/').next().unwrap().parse().unwrap();
    assert_ne!(admin, server.addr);

    for path in ["/console/", "/console/console.js", SESSION] {
        assert_eq!(status_at(admin, path), 200, "{path}");
        assert_eq!(status_at(server.addr, path), 404, "{path}");
    }
    let main = server.get("/console/").await;
    assert_eq!(main.header("content-security-policy"), None);
}

#[test]
fn a_console_without_admin_access_is_an_error_at_the_start() {
    let refused = |prepare: &dyn Fn(&mut Command)| {
        let mut command = Command::new("timeout");
        command.arg("10").arg(binary().get_program());
        prepare(command.args(["--listen", "127.0.0.1:0"]));
        let ended = command.output().unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        (ended.status.code(), told)
    };
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("server.toml");
    std::fs::write(&file, "console = \"read\"\n").unwrap();

    for (code, told) in [
        refused(&|command| {
            command.args(["--console", "read"]);
        }),
        refused(&|command| {
            command.args(["--console", "write"]);
        }),
        refused(&|command| {
            command.env("RATELIMIT_CONSOLE", "write");
        }),
        refused(&|command| {
            command.arg("--config").arg(&file);
        }),
    ] {
        assert_eq!(code, Some(1), "{told}");
        let expected = "console has no effect without admin access";
        assert!(told.contains(expected), "{told}");
    }
    std::fs::write(&file, "console = \"edit\"\n").unwrap();
    let (code, told) = refused(&|command| {
        command.arg("--config").arg(&file);
    });
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("expected one of off, read, write"), "{told}");
}

#[tokio::test]
async fn the_mode_comes_from_the_file_and_a_change_needs_a_restart() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("server.yaml");
    let server = Server::with_file(&dir, "admin-without-token: true\nconsole: write\n");
    assert_eq!(server.get(SESSION).await.json()["mode"], "write");

    std::fs::write(&path, "admin-without-token: true\nconsole: read\n").unwrap();
    let warning = "these changed settings need a restart: console";
    crate::server::until(async || server.log().contains(warning).then_some(())).await;

    assert_eq!(server.get(SESSION).await.json()["mode"], "write");
}

#[tokio::test]
async fn every_call_of_the_document_but_the_session_needs_authorisation() {
    let console = Console::start(&["--console", "write"]);
    let server = &console.server;
    let document = server.get("/openapi.json").await.json();
    let paths = document["paths"].as_object().unwrap().iter();
    let of_console = paths.filter(|(path, _)| path.starts_with("/console/"));
    let mut sessions = 0;

    for (path, operations) in of_console {
        for method in operations.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let request = server.request(method.clone(), &path.replace(['{', '}'], "x"));
            let request = request.header("content-type", "application/json");
            let status = server.send(request, "{}").await.status.as_u16();
            if path == SESSION {
                assert_ne!(status, 401, "{method} {path}");
                sessions += 1;
            } else {
                assert_eq!(status, 401, "{method} {path}");
            }
        }
    }
    assert_eq!(sessions, 3);
}
