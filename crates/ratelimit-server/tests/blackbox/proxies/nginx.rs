//! nginx with the snippet of docs/guides/gateways.md.

use std::{fs, net::SocketAddr, process::Command};

use ratelimit_tests::ports::free_port;
use tempfile::TempDir;

use super::{DOCS, Failing, assert_enforces, assert_fails, process::Proxy, server, snippets};
use crate::server::{CHECK, OFFENDERS, REMAINING, Server, until};

const CONF: &str = r#"
daemon off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    underscores_in_headers on;
    HTTP
    upstream service { server 127.0.0.1:SERVICE; }
    server {
        listen 127.0.0.1:SERVICE;
        location / { return 200 "served"; }
    }
    server {
        listen 127.0.0.1:PORT;
        SNIPPET
    }
}
"#;

fn start(addr: SocketAddr, failing: Failing) -> Proxy {
    let snippets = snippets("nginx", addr);
    let (upstream, locations) = snippets[0].split_once("\n\n").unwrap();
    let place = "# To fail open, add the two lines below here.";
    assert!(locations.contains(place), "{locations}");
    match failing {
        Failing::Open => start_with(upstream, &locations.replace(place, &snippets[1])),
        Failing::Closed => start_with(upstream, locations),
    }
}

/// The flags of the command of the page.
fn flags_of_page() -> Vec<&'static str> {
    let (_, rest) = DOCS.split_once("```sh\nratelimit-server ").unwrap();
    let (line, _) = rest.split_once('\n').unwrap();
    line.split(' ')
        .map(|word| word.trim_matches('\''))
        .collect()
}

/// Starts nginx with further directives for `http` and for its server.
fn start_with(http: &str, server: &str) -> Proxy {
    let dir = TempDir::new().unwrap();
    let port = free_port();
    let conf = CONF
        .replace("PORT", &port.to_string())
        .replace("SERVICE", &free_port().to_string())
        .replace("HTTP", http)
        .replace("SNIPPET", server);
    fs::write(dir.path().join("nginx.conf"), conf).unwrap();
    let child = Command::new(binary())
        .arg("-p")
        .arg(dir.path())
        .args(["-c", "nginx.conf"])
        .spawn()
        .expect("nginx, as in `apt-get install nginx-light`");
    Proxy {
        child,
        port,
        _dir: dir,
    }
}

/// Debian keeps it where users' paths do not lead.
fn binary() -> &'static str {
    ["/usr/sbin/nginx", "/usr/local/sbin/nginx"]
        .into_iter()
        .find(|path| fs::exists(path).unwrap_or(false))
        .unwrap_or("nginx")
}

/// nginx takes any response of forward-auth but 2xx, 401 and 403 for an error, and answers 500.
#[tokio::test]
async fn nginx_passes_a_path_that_is_not_ascii() {
    let dir = TempDir::new().unwrap();
    let server = server(&dir);
    let proxy = start(server.addr, Failing::Closed);
    until(|| proxy.get("/health", "Accept: */*")).await;

    assert_eq!(proxy.status("/bücher", "Accept: */*").await, 200);
    assert_eq!(proxy.status("/admin/bücher", "Accept: */*").await, 403);
}

#[tokio::test]
async fn nginx_enforces_the_policy_whatever_its_clients_claim() {
    let dir = TempDir::new().unwrap();
    let server = server(&dir);

    assert_enforces(&start(server.addr, Failing::Closed)).await;
}

#[tokio::test]
async fn nginx_fails_open_or_closed_as_the_page_says() {
    assert_fails(start, 503).await;
}

#[tokio::test]
async fn the_command_and_the_block_of_the_page_give_each_client_a_budget() {
    let server = Server::start(&flags_of_page());
    let proxy = start(server.addr, Failing::Closed);
    until(|| proxy.get("/", "Accept: */*")).await;

    for _ in 0..3 {
        let answer = proxy.get_from([127, 0, 0, 2], "/", "Accept: */*").await;
        assert_eq!(answer.unwrap().status, 200);
    }

    let path = format!("{REMAINING}?policy=site&key=ip:127.0.0.2");
    assert_eq!(server.get(&path).await.json()["remaining"], 97);
}

/// By default nginx adds no header, and its upstream's address is the `Host`.
#[tokio::test]
async fn a_client_of_a_plain_proxy_pass_is_no_local_caller() {
    let server = Server::start(&["--admin-without-token"]);
    let location = format!("location / {{ proxy_pass http://{}; }}", server.addr);
    let proxy = start_with("", &location);
    until(|| proxy.get("/actuator/health", "Accept: */*")).await;

    assert_eq!(proxy.status(OFFENDERS, "Accept: */*").await, 403);
    assert_eq!(server.get(OFFENDERS).await.status, 200);
}

const MOVING: &str = include_str!("../../../../../docs/move/others.md");

/// The page has these rows with a rate of `10r/s`; at `1r/m` nothing comes back while the test runs.
#[tokio::test]
async fn limit_req_passes_as_many_at_once_as_the_limit_on_the_page() {
    let zones = "limit_req_zone $server_port zone=one:1m rate=1r/m;
        limit_req_zone $server_port zone=two:1m rate=1r/m;";
    let locations = "location = /ready { try_files /none =204; }
        location = /plain { limit_req zone=one; try_files /none =204; }
        location = /burst { limit_req zone=two burst=20 nodelay; try_files /none =204; }";
    let proxy = start_with(zones, locations);
    until(|| proxy.get("/ready", "Accept: */*")).await;

    for (path, burst, most) in [("/plain", "burst 1", 1), ("/burst", "burst 21", 21)] {
        let policy = format!("page=1/min {burst}");
        let server = Server::start(&["--policy", &policy]);
        let (mut passed, mut allowed) = (0, 0);
        for _ in 0..25 {
            passed += u32::from(proxy.status(path, "Accept: */*").await == 204);
            let check = server.get(&format!("{CHECK}?policy=page&key=k")).await;
            allowed += u32::from(check.status == 200);
        }

        assert_eq!((passed, allowed), (most, most), "{path}");
        assert!(MOVING.contains(&format!("| `10/s {burst}`")), "{burst}");
    }
}
