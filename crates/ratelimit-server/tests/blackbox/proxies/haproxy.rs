//! `HAProxy` with the snippets of docs/guides/gateways.md.

use std::{
    fs,
    net::SocketAddr,
    process::{Command, Stdio},
};

use ratelimit_tests::ports::free_port;
use tempfile::TempDir;

use super::{Failing, assert_enforces, assert_fails, process::Proxy, server, snippets};

/// The parts that the snippet leaves to its reader: timeouts, and the service.
const REST: &str = "
defaults
    mode http
    timeout connect 10s
    timeout client 10s
    timeout server 10s

backend service
    http-request return status 200 content-type text/plain string served
";

fn start(addr: SocketAddr, failing: Failing) -> Proxy {
    let dir = TempDir::new().unwrap();
    let port = free_port();
    let snippets_of_page = snippets("haproxy", addr);
    let [conf, pass] = &snippets_of_page[..] else {
        panic!("{snippets_of_page:?}");
    };
    let conf = conf.replace("bind :80", &format!("bind 127.0.0.1:{port}"));
    let place = "# To fail open, add the line below here.";
    assert!(conf.contains(place), "{conf}");
    let conf = match failing {
        Failing::Open => conf.replace(place, pass),
        Failing::Closed => conf,
    };
    // Defaults apply to the sections below them.
    let (global, frontend) = conf.split_once("\nfrontend").unwrap();
    let conf = format!("{global}\n{REST}\nfrontend{frontend}");
    fs::write(dir.path().join("haproxy.cfg"), conf).unwrap();
    fs::write(dir.path().join("limit.lua"), &snippets("lua", addr)[0]).unwrap();
    let child = Command::new(binary())
        .args(["-db", "-f", "haproxy.cfg"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("haproxy, as in `apt-get install haproxy`");
    Proxy {
        child,
        port,
        _dir: dir,
    }
}

/// Debian keeps it where users' paths do not lead.
fn binary() -> &'static str {
    let known = "/usr/sbin/haproxy";
    if fs::exists(known).unwrap_or(false) {
        known
    } else {
        "haproxy"
    }
}

#[tokio::test]
async fn haproxy_enforces_the_policy_whatever_its_clients_claim() {
    let dir = TempDir::new().unwrap();
    let server = server(&dir);

    assert_enforces(&start(server.addr, Failing::Closed)).await;
}

#[tokio::test]
async fn haproxy_fails_open_or_closed_as_the_page_says() {
    assert_fails(start, 503).await;
}
