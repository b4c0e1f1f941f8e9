//! The files of the page, and the headers of every response below `/console`.

use std::collections::BTreeSet;

use http::Method;

use super::{Console, SESSION, with_host};
use crate::server::{HttpResponse, OFFENDERS};

/// The largest page, all files included.
const MAX_PAGE_BYTES: usize = 70_000;

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

pub(super) const FILES: [(&str, &str); 18] = [
    ("", "text/html; charset=utf-8"),
    ("index.html", "text/html; charset=utf-8"),
    ("console.css", "text/css; charset=utf-8"),
    ("icon.svg", "image/svg+xml"),
    ("api.js", JAVASCRIPT),
    ("cells.js", JAVASCRIPT),
    ("chart.js", JAVASCRIPT),
    ("client_key.js", JAVASCRIPT),
    ("console.js", JAVASCRIPT),
    ("dom.js", JAVASCRIPT),
    ("file.js", JAVASCRIPT),
    ("format.js", JAVASCRIPT),
    ("key.js", JAVASCRIPT),
    ("live.js", JAVASCRIPT),
    ("overview.js", JAVASCRIPT),
    ("policies.js", JAVASCRIPT),
    ("session.js", JAVASCRIPT),
    ("try.js", JAVASCRIPT),
];

const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

fn assert_protected(answer: &HttpResponse) {
    for (name, expected) in [
        ("content-security-policy", CSP),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), Some(expected), "{answer:?}");
    }
    let policy = answer.header("permissions-policy").unwrap();
    assert!(policy.contains("camera=()"), "{policy}");
}

#[tokio::test]
async fn files_have_their_type_and_are_asked_for_again_by_their_tag() {
    let console = Console::start(&[]);
    let server = &console.server;
    let with_tag = async |path: &str, tag: &str| {
        let request = server.request(Method::GET, path);
        server.send(request.header("if-none-match", tag), "").await
    };
    let mut tags = BTreeSet::new();

    for (name, content_type) in FILES {
        let path = format!("/console/{name}");
        let answer = server.get(&path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), Some(content_type), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-cache"), "{path}");
        assert!(!answer.body.is_empty(), "{path}");
        let tag = answer.header("etag").unwrap().to_owned();
        for known in [&tag, &format!("\"x\", W/{tag}"), "*"] {
            let unchanged = with_tag(&path, known).await;
            assert_eq!(unchanged.status, 304, "{path} {known}");
            assert_eq!(unchanged.body, "");
            assert_eq!(unchanged.header("etag"), Some(&*tag));
            assert_protected(&unchanged);
        }
        for other in ["\"x\"", "x", ""] {
            assert_eq!(with_tag(&path, other).await.status, 200, "{path} {other}");
        }
        let head = server.send(server.request(Method::HEAD, &path), "").await;
        assert_eq!(head.status, 200);
        assert_eq!(head.header("etag"), Some(&*tag));
        let length = answer.body.len().to_string();
        assert_eq!(head.header("content-length"), Some(&*length));
        assert_eq!(head.body, "");
        tags.insert(tag);
    }
    // `/console/` and `index.html` are one file.
    assert_eq!(tags.len(), FILES.len() - 1);
}

#[tokio::test]
async fn the_page_needs_no_other_server_and_is_small() {
    let console = Console::start(&[]);
    let page = console.server.get("/console/").await.body;
    let attributes = ["src=\"", "href=\"", "data-api=\""].into_iter();
    let references = attributes.flat_map(|attribute| page.split(attribute).skip(1));
    let references = references.map(|rest| rest.split('"').next().unwrap());
    let files = references.filter(|reference| !reference.starts_with(['#', '/']));

    let mut found = 0;
    for file in files {
        let path = format!("/console/{}", file.trim_start_matches("./"));
        assert_eq!(console.server.get(&path).await.status, 200, "{path}");
        found += 1;
    }

    assert!(found >= 3, "{found}");
    let mut bytes = 0;
    for (name, _) in &FILES[1..] {
        let answer = console.server.get(&format!("/console/{name}")).await;
        bytes += answer.body.len();
    }
    assert!(bytes < MAX_PAGE_BYTES, "{bytes}");
}

#[tokio::test]
async fn without_its_slash_the_address_redirects_relatively() {
    let console = Console::start(&[]);

    let answer = console.server.get("/console").await;

    assert_eq!(answer.status, 307);
    // Relative: behind a proxy that removes the prefix /limits it leads to /limits/console/.
    assert_eq!(answer.header("location"), Some("console/"));
}

#[tokio::test]
async fn every_response_below_the_console_has_the_security_headers() {
    let console = Console::start(&["--max-body", "100"]);
    let server = &console.server;
    let ask = async |method: Method, path: &str, name: &str, value: &str| {
        let request = server.request(method, path).header(name, value);
        server.send(request, "x".repeat(200)).await
    };
    let (site, json) = (
        ("sec-fetch-site", "none"),
        ("content-type", "application/json"),
    );

    for (method, path, (name, value), status) in [
        (Method::GET, "/console", site, 307),
        (Method::GET, "/console/", site, 200),
        (Method::GET, "/console/nothing.js", site, 404),
        (Method::GET, "/console/api/nothing", site, 404),
        (Method::GET, "/console/../Cargo.toml", site, 404),
        (Method::GET, "/console/%2e%2e%2fCargo.toml", site, 404),
        (Method::POST, "/console/console.js", json, 405),
        (Method::PUT, SESSION, json, 405),
        (Method::GET, SESSION, site, 200),
        (Method::GET, SESSION, ("sec-fetch-site", "cross-site"), 403),
        (Method::POST, SESSION, site, 403),
        (Method::POST, SESSION, ("x", "x"), 415),
        (Method::POST, SESSION, json, 413),
    ] {
        let answer = ask(method.clone(), path, name, value).await;
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        assert_protected(&answer);
    }
    let misdirected = with_host(server, "/console/", "evil.example").await;
    assert!(misdirected.contains(CSP), "{misdirected}");
    let others = server.get(OFFENDERS).await;
    assert_eq!(others.header("content-security-policy"), None);
    let beside = server.get("/consoles").await;
    assert_eq!(beside.header("content-security-policy"), None);
}
