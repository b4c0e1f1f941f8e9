//! Caddy with the snippet of docs/guides/gateways.md.

use std::{fs, process::Command};

use ratelimit_tests::ports::free_port;
use tempfile::TempDir;

use super::{assert_enforces, process::Proxy, server, snippet};
use crate::server::Server;

const CONF: &str = r#"
{
    admin off
}
http://127.0.0.1:PORT {
    SNIPPET
    respond "served"
}
"#;

fn start(server: &Server) -> Proxy {
    let dir = TempDir::new().unwrap();
    let port = free_port();
    let conf = CONF
        .replace("PORT", &port.to_string())
        .replace("SNIPPET", &snippet("caddy", server));
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

    assert_enforces(&start(&server)).await;
}
