//! Forward authentication, by itself and behind a real nginx.

use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use http::{Method, StatusCode};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::server::{Server, until};

const FORWARD_AUTH: &str = "/api/v1/rate-limit/forward-auth";

#[tokio::test]
async fn a_denial_has_the_status_that_the_proxy_takes_for_one() {
    let server = Server::start(&["--trusted", "127.0.0.1", "--policy", "one=fixed_window 1/d"]);
    let ask = |client: &str, denied: &str, method: Method| {
        let path = format!("{FORWARD_AUTH}?policy=one{denied}");
        server.send(
            server
                .request(method, &path)
                .header("x-forwarded-for", client),
            "",
        )
    };

    assert_eq!(ask("1.1.1.1", "", Method::GET).await.status, StatusCode::OK);
    let denied = ask("1.1.1.1", "", Method::POST).await;
    assert_eq!(
        (denied.status, denied.body.as_str()),
        (StatusCode::TOO_MANY_REQUESTS, "")
    );
    assert!(denied.header("retry-after").is_some());
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(
        ask("1.1.1.1", "&denied=403", Method::GET).await.status,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        ask("1.1.1.1", "&denied=401", Method::GET).await.status,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        ask("2.2.2.2", "", Method::HEAD).await.status,
        StatusCode::OK
    );
    ask("2.2.2.2", "&denied=200", Method::GET)
        .await
        .problem(400);
}

/// The snippet of docs/server.md, with addresses of this test.
const CONF: &str = r#"
daemon off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server {
        listen 127.0.0.1:PORT;
        location / {
            auth_request /_limit;
            auth_request_set $retry_after $upstream_http_retry_after;
            error_page 403 = @limited;
            try_files /nothing @service;
        }
        location @service { return 200 "served"; }
        location = /_limit {
            internal;
            proxy_pass http://SERVER/api/v1/rate-limit/forward-auth?policy=site&denied=403;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
            proxy_set_header X-Forwarded-For $remote_addr;
        }
        location @limited {
            add_header Retry-After $retry_after always;
            return 429 "slow down";
        }
    }
}
"#;

struct Nginx {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Nginx {
    fn start(server: &Server) -> Nginx {
        let dir = TempDir::new().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let conf = CONF
            .replace("PORT", &port.to_string())
            .replace("SERVER", &server.addr.to_string());
        fs::write(dir.path().join("nginx.conf"), conf).unwrap();
        let child = Command::new(binary())
            .arg("-p")
            .arg(dir.path())
            .args(["-c", "nginx.conf"])
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx, as in `apt-get install nginx-light`");
        Nginx {
            child,
            port,
            _dir: dir,
        }
    }

    /// The status line and head of what it answers, nothing while it does not listen yet.
    async fn get(&self) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let request = "GET / HTTP/1.0\r\nx-forwarded-for: 6.6.6.6\r\n\r\n";
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        // The master ends its workers only when it is asked to.
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

/// Debian keeps it where users' paths do not lead.
fn binary() -> &'static str {
    ["/usr/sbin/nginx", "/usr/local/sbin/nginx"]
        .into_iter()
        .find(|path| fs::exists(path).unwrap_or(false))
        .unwrap_or("nginx")
}

#[tokio::test]
async fn nginx_lets_through_what_the_policy_allows() {
    let server = Server::start(&[
        "--trusted",
        "127.0.0.1",
        "--policy",
        "site=fixed_window 3/d",
    ]);
    let nginx = Nginx::start(&server);

    let mut answers = vec![until(|| nginx.get()).await];
    for _ in 0..4 {
        answers.push(nginx.get().await.unwrap());
    }

    let statuses: Vec<&str> = answers.iter().map(|answer| &answer[9..12]).collect();
    assert_eq!(statuses, ["200", "200", "200", "429", "429"], "{answers:?}");
    assert!(answers[4].contains("\r\nRetry-After: "), "{}", answers[4]);
}
