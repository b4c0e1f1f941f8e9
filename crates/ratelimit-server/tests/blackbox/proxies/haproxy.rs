//! `HAProxy` with the snippets of docs/guides/gateways.md.

use std::{
    fs,
    process::{Command, Stdio},
};

use ratelimit_tests::ports::free_port;
use tempfile::TempDir;

use super::{assert_enforces, process::Proxy, server, snippet};
use crate::server::Server;

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

fn start(server: &Server) -> Proxy {
    let dir = TempDir::new().unwrap();
    let port = free_port();
    let conf = snippet("haproxy", server).replace("bind :80", &format!("bind 127.0.0.1:{port}"));
    // Defaults apply to the sections below them.
    let (global, frontend) = conf.split_once("\nfrontend").unwrap();
    let conf = format!("{global}\n{REST}\nfrontend{frontend}");
    fs::write(dir.path().join("haproxy.cfg"), conf).unwrap();
    fs::write(dir.path().join("limit.lua"), snippet("lua", server)).unwrap();
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

    assert_enforces(&start(&server)).await;
}
