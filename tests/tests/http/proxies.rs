//! Real proxies in front: what they write is what the layer reads.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, request::Parts};
use ratelimit_http::client_ip::TrustedProxies;
use ratelimit_tests::ports::free_port;
use ratelimit_tower::{ClientKey, KeyExtractor as _};
use tokio::net::TcpStream;

use crate::server::{Asker, clock, layer, serve};

/// From where the proxies connect to the server.
const PROXY: &str = "127.0.0.9";

/// Each path is a way to tell who the client is.
const NGINX: &str = r#"
daemon off;
master_process off;
pid DIR/nginx.pid;
error_log stderr error;
events { worker_connections 64; }
http {
    access_log off;
    map $remote_addr $client {
        ~: "[$remote_addr]";
        default $remote_addr;
    }
    client_body_temp_path DIR/body;
    proxy_temp_path DIR/proxy;
    fastcgi_temp_path DIR/fastcgi;
    uwsgi_temp_path DIR/uwsgi;
    scgi_temp_path DIR/scgi;
    server {
        listen 127.0.0.1:PORT;
        listen [::1]:PORT;
        proxy_bind 127.0.0.9;
        location /append {
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_pass http://SERVER;
        }
        location /real-ip {
            proxy_set_header X-Forwarded-For "";
            proxy_set_header X-Real-IP $remote_addr;
            proxy_pass http://SERVER;
        }
        location /ip-port {
            proxy_set_header X-Forwarded-For "$http_x_forwarded_for, $client:$remote_port";
            proxy_pass http://SERVER;
        }
    }
}
"#;

const HAPROXY: &str = r"
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend web
    bind 127.0.0.1:PORT
    bind [::1]:PORT
    use_backend real_ip if { path /real-ip }
    use_backend ip_port if { path /ip-port }
    default_backend append
backend append
    option forwardfor
    server one SERVER source 127.0.0.9
backend real_ip
    http-request del-header X-Forwarded-For
    http-request set-header X-Real-IP %[src]
    server one SERVER source 127.0.0.9
backend ip_port
    http-request add-header X-Forwarded-For %[src]:%[src_port] unless { src ::1 }
    http-request add-header X-Forwarded-For [%[src]]:%[src_port] if { src ::1 }
    server one SERVER source 127.0.0.9
";

#[tokio::test]
async fn behind_nginx_each_client_has_its_budget() {
    clients_are_told_apart(|server| Proxy::start("nginx", NGINX, &["-p", "DIR", "-c"], server))
        .await;
}

#[tokio::test]
async fn behind_haproxy_each_client_has_its_budget() {
    clients_are_told_apart(|server| Proxy::start("haproxy", HAPROXY, &["-db", "-q", "-f"], server))
        .await;
}

async fn clients_are_told_apart(start: impl AsyncFn(SocketAddr) -> Proxy) {
    for path in ["/append", "/real-ip", "/ip-port"] {
        let keys = Arc::new(Mutex::new(Vec::new()));
        let client = ClientKey::behind(TrustedProxies::parse([PROXY]).expect("an address"));
        let seen = Arc::clone(&keys);
        let layer = layer(&clock(), "2/min").key_by(move |request: &Parts| {
            let key = client.extract(request)?;
            seen.lock().expect("no test failed").push(key.to_string());
            Ok(key)
        });
        let proxy = start(serve("127.0.0.1", layer).await).await;

        let clients = [
            ("127.0.0.5", proxy.ipv4()),
            ("127.0.0.6", proxy.ipv4()),
            ("::1", proxy.ipv6()),
        ];
        for (source, address) in clients {
            let asker = Asker::from(source, address);
            let mut statuses = Vec::new();
            for forged in ["198.51.100.1", "198.51.100.2", "junk, \"", "127.0.0.9"] {
                let request = Request::get(asker.uri(path))
                    .header("x-forwarded-for", forged)
                    .header("x-real-ip", forged);
                statuses.push(asker.ask(request).await.status());
            }

            assert_eq!(statuses, [200, 200, 429, 429], "{source} {path}");
        }
        let mut keys = keys.lock().expect("no test failed").clone();
        keys.dedup();
        // Told apart by /64, the address ::1 is the network of its first 64 bits.
        assert_eq!(keys, ["ip:127.0.0.5", "ip:127.0.0.6", "ip:::/64"], "{path}");
    }
}

/// A proxy that dies with the test.
struct Proxy {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl Proxy {
    async fn start(program: &str, config: &str, arguments: &[&str], server: SocketAddr) -> Proxy {
        let binary = found(program);
        let port = free_port();
        let name = format!("ratelimit-{program}-{}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder for the proxy");
        let dir = folder.to_str().expect("a plain name");
        let text = config
            .replace("DIR", dir)
            .replace("PORT", &port.to_string())
            .replace("SERVER", &server.to_string());
        let file = folder.join("proxy.conf");
        std::fs::write(&file, text).expect("the configuration is written");
        let process = Command::new(binary)
            .args(
                arguments
                    .iter()
                    .map(|argument| argument.replace("DIR", dir)),
            )
            .arg(&file)
            .stdin(Stdio::null())
            .spawn()
            .expect("the proxy starts");
        let proxy = Proxy {
            process,
            port,
            folder,
        };
        proxy.wait_until_it_listens().await;
        proxy
    }

    fn ipv4(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn ipv6(&self) -> SocketAddr {
        ([0, 0, 0, 0, 0, 0, 0, 1], self.port).into()
    }

    async fn wait_until_it_listens(&self) {
        for _ in 0..500 {
            if TcpStream::connect(self.ipv6()).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the proxy does not listen on port {}", self.port);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn found(program: &str) -> PathBuf {
    find(program).unwrap_or_else(|| panic!("{program} is needed: `cargo xtask test` installs it"))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders
        .map(|folder| folder.join(program))
        .find(|binary| binary.is_file())
}
