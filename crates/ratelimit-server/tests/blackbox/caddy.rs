//! Forward authentication behind a real Caddy.

use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::server::{Server, until};

/// The snippet of docs/server.md, with addresses of this test.
const CONF: &str = r#"
{
    admin off
}
http://127.0.0.1:PORT, http://shop.example:PORT {
    forward_auth SERVER {
        uri /api/v1/rate-limit/forward-auth?policy=site
        header_up Host {upstream_hostport}
    }
    respond "served"
}
"#;

struct Caddy {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Caddy {
    fn start(server: &Server) -> Caddy {
        let dir = TempDir::new().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let conf = CONF
            .replace("PORT", &port.to_string())
            .replace("SERVER", &server.addr.to_string());
        fs::write(dir.path().join("Caddyfile"), conf).unwrap();
        let child = Command::new("caddy")
            .args(["run", "--config", "Caddyfile"])
            .current_dir(dir.path())
            .env("HOME", dir.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_DATA_HOME")
            .stderr(Stdio::null())
            .spawn()
            .expect("caddy, as in `apt-get install caddy`");
        Caddy {
            child,
            port,
            _dir: dir,
        }
    }

    /// What it answers to a client that says it is another, nothing while it does not listen yet.
    async fn get(&self, forged: u8) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let request = format!(
            "GET / HTTP/1.1\r\nhost: shop.example:{}\r\nsec-fetch-site: cross-site\r\nx-forwarded-for: 6.6.6.{forged}\r\n\
             connection: close\r\n\r\n",
            self.port
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn caddy_lets_through_what_the_policy_allows() {
    let policy = ["--policy", "site=fixed_window 3/d"];
    let server = Server::start(&[&["--trusted", "127.0.0.1"], &policy[..]].concat());
    let caddy = Caddy::start(&server);

    let mut answers = vec![until(|| caddy.get(0)).await];
    for forged in 1..5 {
        answers.push(caddy.get(forged).await.unwrap());
    }

    let statuses: Vec<&str> = answers.iter().map(|answer| &answer[9..12]).collect();
    assert_eq!(statuses, ["200", "200", "200", "429", "429"], "{answers:?}");
    assert!(answers[0].ends_with("served"), "{}", answers[0]);
    assert!(answers[4].contains("\r\nRetry-After: "), "{}", answers[4]);
}
