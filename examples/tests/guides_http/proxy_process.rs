//! nginx, Caddy and `HAProxy` with the blocks of the guides.

use std::{
    fs::{self, File},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use ratelimit_tests::{page::Page, ports::free_port, proxy_variables};
use tempfile::TempDir;

use crate::eventually;

const PAGE: &str = "docs/guides/proxy.md";

/// A proxy in front of an example, until this is dropped.
pub(crate) struct ProxyProcess {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl ProxyProcess {
    pub(crate) fn nginx(service: &str) -> ProxyProcess {
        ProxyProcess::nginx_of(PAGE, service)
    }

    /// nginx with its block of another page.
    pub(crate) fn nginx_of(page: &str, service: &str) -> ProxyProcess {
        let rest = "daemon off; master_process off; pid nginx.pid; error_log stderr; events {}\n\
            http { access_log off; client_body_temp_path body; proxy_temp_path proxy;\n\
            fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n";
        ProxyProcess::start(page, "nginx", service, |block, port| {
            let server = block.replace("listen 80;", &format!("listen 127.0.0.1:{port};"));
            (format!("{rest}{server}}}"), &["-p", ".", "-c", "conf"])
        })
    }

    pub(crate) fn caddy(service: &str) -> ProxyProcess {
        ProxyProcess::start(PAGE, "caddy", service, |block, port| {
            let site = block.replace(":80 {", &format!("http://127.0.0.1:{port} {{"));
            let conf = format!("{{\n    admin off\n}}\n{site}");
            (conf, &["run", "--adapter", "caddyfile", "--config", "conf"])
        })
    }

    pub(crate) fn haproxy(service: &str) -> ProxyProcess {
        ProxyProcess::start(PAGE, "haproxy", service, |block, port| {
            let conf = block.replace("bind :80", &format!("bind 127.0.0.1:{port}"));
            (conf, &["-db", "-f", "conf"])
        })
    }

    /// Address at which the proxy listens.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts `program` with its block of `page`, in front of `service`.
    fn start(
        page: &str,
        program: &str,
        service: &str,
        configure: impl FnOnce(&str, u16) -> (String, &'static [&'static str]),
    ) -> ProxyProcess {
        let dir = TempDir::new().expect("a folder for the proxy");
        let port = free_port();
        let block = Page::open(page).first(program);
        assert!(block.contains("127.0.0.1:3000"), "{program}");
        let (conf, arguments) = configure(&block.replace("127.0.0.1:3000", service), port);
        fs::write(dir.path().join("conf"), conf).expect("the configuration");
        // Debian keeps servers where users' paths do not lead.
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
        let log = dir.path().join("log");
        let stderr = File::create(&log).expect("a file for the log");
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\"", "sh", program])
            .args(arguments)
            .current_dir(dir.path())
            .env("PATH", path)
            .env("HOME", dir.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_DATA_HOME")
            .stdin(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("a shell");
        let mut has_ended = false;
        let listens = eventually(|| {
            has_ended = child.try_wait().expect("a child").is_some();
            has_ended || TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        let proxy = ProxyProcess {
            child,
            port,
            _dir: dir,
        };
        assert!(
            listens && !has_ended,
            "{program} does not start: {}",
            fs::read_to_string(log).unwrap_or_default()
        );
        proxy
    }

    /// Sends a request from `source` with curl, and returns the body and the status.
    pub(crate) fn curl(&self, source: &str, path: &str, arguments: &[&str]) -> String {
        let output = proxy_variables::clear(&mut Command::new("curl"))
            .args(["-q", "-s", "-w", "%{http_code}", "--interface", source])
            .args(arguments)
            .arg(format!("http://{}{path}", self.address()))
            .output();
        String::from_utf8(output.expect("curl").stdout).expect("text")
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
