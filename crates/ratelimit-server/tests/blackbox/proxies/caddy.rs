//! Caddy with the snippet of docs/guides/gateways.md.

use std::{fs, net::SocketAddr, process::Command};

use ratelimit_tests::ports::free_port;
use tempfile::TempDir;

use super::{Failing, assert_enforces, assert_fails, process::Proxy, server, snippets};

const CONF: &str = r#"
{
    admin off
}
http://127.0.0.1:PORT {
    SNIPPET
    respond "served"
}
REST
"#;

fn start(addr: SocketAddr, failing: Failing) -> Proxy {
    let mut snippets = snippets("caddy", addr);
    // The second upstream of the page.
    let pass = format!("127.0.0.1:{}", free_port());
    let mut next =
        |index: usize| std::mem::take(&mut snippets[index]).replace("127.0.0.1:8099", &pass);
    let (snippet, rest) = match failing {
        Failing::Closed => (next(0), String::new()),
        Failing::Open => (next(1), next(2)),
    };
    let dir = TempDir::new().unwrap();
    let port = free_port();
    let conf = CONF
        .replace("PORT", &port.to_string())
        .replace("SNIPPET", &snippet)
        .replace("REST", &rest);
    fs::write(dir.path().join("Caddyfile"), conf).unwrap();
    let child = Command::new("caddy")
        .args(["run", "--config", "Caddyfile"])
        .current_dir(dir.path())
        .env("HOME", dir.path())
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_DATA_HOME")
        .spawn()
        .expect("caddy, as in `apt-get install caddy`");
    Proxy {
        child,
        port,
        _dir: dir,
    }
}

#[tokio::test]
async fn caddy_enforces_the_policy_whatever_its_clients_claim() {
    let dir = TempDir::new().unwrap();
    let server = server(&dir);

    assert_enforces(&start(server.addr, Failing::Closed)).await;
}

#[tokio::test]
async fn caddy_fails_open_or_closed_as_the_page_says() {
    assert_fails(start, 502).await;
}
