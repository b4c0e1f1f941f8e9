//! The documented queries, asked of a real Prometheus.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ratelimit_tests::ports::free_port;
use serde_json::Value;
use tempfile::TempDir;

use crate::server::{CHECK, Server, until};

const QUERIES: [&str; 3] = [
    r#"sum(rate(rate_limiter_requests_total{allowed="false"}[1m])) by (algorithm)"#,
    "histogram_quantile(0.99, rate(rate_limiter_check_seconds_bucket[5m]))",
    "sum(rate(rate_limiter_requests_total[5m])) by (algorithm)",
];

struct Prometheus {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Prometheus {
    fn scraping(server: &Server) -> Prometheus {
        let dir = TempDir::new().unwrap();
        let port = free_port();
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
             scrape_configs:\n- job_name: limiter\n  metrics_path: /actuator/prometheus\n  \
             static_configs: [{{targets: ['{}']}}]\n",
            server.addr
        );
        fs::write(dir.path().join("prometheus.yml"), config).unwrap();
        let child = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus, as in `apt-get install prometheus`");
        Prometheus {
            child,
            port,
            _dir: dir,
        }
    }

    /// The result of a query, nothing while there is none.
    async fn ask(&self, query: &str) -> Option<Vec<Value>> {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let uri = format!("http://127.0.0.1:{}/api/v1/query?query={query}", self.port);
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<&[u8]>>();
        let request = Request::get(uri).body(Empty::new()).unwrap();
        let body = client.request(request).await.ok()?.collect().await.ok()?;
        let answer: Value = serde_json::from_slice(&body.to_bytes()).ok()?;
        let result = answer["data"]["result"].as_array()?.clone();
        let is_told = |series: &Value| {
            series["value"][1]
                .as_str()
                .is_some_and(|text| text != "NaN")
        };
        (!result.is_empty() && result.iter().all(is_told)).then_some(result)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_documented_queries_answer_as_they_stand() {
    let server = Server::start(&["--policy", "one=fixed_window 1/d"]);
    let prometheus = Prometheus::scraping(&server);

    for query in QUERIES {
        let result = until(|| async {
            for _ in 0..32 {
                server.get(&format!("{CHECK}?policy=one&key=k")).await;
            }
            prometheus.ask(query).await
        })
        .await;

        println!("{query}\n  {}", serde_json::to_string(&result).unwrap());
        if query.contains("by (algorithm)") {
            assert_eq!(result[0]["metric"]["algorithm"], "fixed_window");
        }
    }
}
