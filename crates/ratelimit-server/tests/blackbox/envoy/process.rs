//! A real Envoy: its process, its client and its configuration.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use ratelimit_tests::ports::free_port;
use tempfile::TempDir;

use super::EnvoyServer;

/// The program that `cargo xtask test` installs.
fn program() -> PathBuf {
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect();
    root.join("target/python/bin/envoy")
}

/// How the filter treats the service.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterOptions {
    /// A call that fails is an error 500.
    Strict,
    /// A call that fails or takes longer than a second lets the request pass, and is counted.
    FailOpen,
}

/// An Envoy that runs until this is dropped.
pub(super) struct Envoy {
    child: Child,
    pub(super) port: u16,
    admin: u16,
    dir: TempDir,
    client: Client<hyper_util::client::legacy::connect::HttpConnector, Full<bytes::Bytes>>,
}

impl Envoy {
    /// Starts an Envoy that asks one of `servers`.
    pub(super) fn start(servers: &[&EnvoyServer], options: FilterOptions) -> Envoy {
        let services = servers.iter().map(|server| server.addr.port()).collect();
        Envoy::launch(services, |ports| bootstrap(ports, options))
    }

    /// Starts an Envoy with a configuration that is made of its ports and those of the services.
    pub(super) fn launch(services: Vec<u16>, bootstrap: impl FnOnce(&Ports) -> String) -> Envoy {
        let ports = Ports {
            limited: free_port(),
            upstream: free_port(),
            admin: free_port(),
            services,
        };
        Envoy::start_with(&bootstrap(&ports), ports.limited, ports.admin)
    }

    /// Starts an Envoy with a configuration that has these ports.
    pub(super) fn start_with(bootstrap: &str, port: u16, admin: u16) -> Envoy {
        let dir = TempDir::new().unwrap();
        let config = dir.path().join("envoy.yaml");
        fs::write(&config, bootstrap).unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new(program())
            .arg("-c")
            .arg(&config)
            .args(["--concurrency", "1", "--disable-hot-restart"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{error}: `cargo xtask test` installs Envoy"));
        Envoy {
            child,
            port,
            admin,
            dir,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Ends it at once.
    pub(super) fn kill(&self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-KILL", &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// All of its log.
    pub(super) fn whole_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// The status and the header fields of a response; `None` while Envoy does not listen.
    pub(super) async fn get(
        &self,
        path: &str,
        headers: &[(&str, &[u8])],
    ) -> Option<(u16, HeaderMap)> {
        let mut request = Request::get(format!("http://127.0.0.1:{}{path}", self.port));
        for (name, value) in headers {
            request = request.header(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let request = request.body(Full::default()).unwrap();
        let response = self.client.request(request).await.ok()?;
        let (head, body) = response.into_parts();
        body.collect().await.ok()?;
        Some((head.status.as_u16(), head.headers))
    }

    /// How many requests passed because a call of the service failed.
    pub(super) async fn failures(&self) -> u64 {
        let uri = format!("http://127.0.0.1:{}/stats", self.admin);
        let request = Request::get(uri).body(Full::default()).unwrap();
        let response = self.client.request(request).await.unwrap();
        let page = response.into_body().collect().await.unwrap().to_bytes();
        let page = String::from_utf8(page.to_vec()).unwrap();
        let lines = page
            .lines()
            .filter(|line| line.contains("failure_mode_allowed"));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        values.sum()
    }

    /// The end of its log.
    pub(super) fn log(&self) -> String {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap();
        log.lines().rev().take(20).collect::<Vec<_>>().join("\n")
    }

    /// How many of `count` requests pass. The others are refused with 429.
    pub(super) async fn passed(
        &self,
        path: &str,
        headers: &[(&str, &[u8])],
        count: usize,
    ) -> usize {
        let mut passed = 0;
        for _ in 0..count {
            let (status, fields) = self.get(path, headers).await.expect("a response");
            assert!(status == 200 || status == 429, "{status}: {fields:?}");
            passed += usize::from(status == 200);
        }
        passed
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The routes of the tests: a path, the actions of its descriptor, and a limit.
const ROUTES: [(&str, &str, &str); 8] = [
    ("/address", "remote_address: {}", ""),
    (
        "/user",
        "request_headers: { header_name: x-user, descriptor_key: user }",
        "",
    ),
    ("/rule", "generic_key: { descriptor_value: api }", ""),
    ("/busy", "generic_key: { descriptor_value: busy }", ""),
    (
        "/override",
        "generic_key: { descriptor_value: api }",
        "{ requests_per_unit: 7, unit: DAY }",
    ),
    (
        "/no-unit",
        "generic_key: { descriptor_value: api }",
        "{ requests_per_unit: 1000, unit: UNKNOWN }",
    ),
    (
        "/none",
        "generic_key: { descriptor_value: other }",
        "{ requests_per_unit: 0, unit: DAY }",
    ),
    (
        "/similar",
        "request_headers: { header_name: x-a, descriptor_key: a }",
        "",
    ),
];

/// Routes whose descriptors have hits of their own: a path, and the value of the descriptor.
///
/// Envoy applies such hits only here, and not among the rate limits of a route.
const METERED: [(&str, &str); 2] = [
    (
        "/tokens",
        "{ actions: [{ generic_key: { descriptor_value: llm } }], hits_addend: { number: 0 } }, \
         { actions: [{ generic_key: { descriptor_value: llm } }], hits_addend: { number: 42 }, \
           apply_on_stream_done: true }",
    ),
    (
        "/borrow",
        "{ actions: [{ generic_key: { descriptor_value: desk } }] }, \
         { actions: [{ generic_key: { descriptor_value: desk } }], \
           hits_addend: { number: 1, is_negative_hits: true }, apply_on_stream_done: true }",
    ),
];

/// The ports of the listeners, and those of the rate limit services.
pub(super) struct Ports {
    limited: u16,
    upstream: u16,
    admin: u16,
    services: Vec<u16>,
}

const TYPE_URL: &str = "type.googleapis.com/envoy.extensions.filters";

/// The configuration of an Envoy whose upstream is a listener of its own.
fn bootstrap(ports: &Ports, options: FilterOptions) -> String {
    let service = cluster("service", &ports.services, &service_options(options));
    bootstrap_with(ports, &filter(options), &routes(), &service)
}

/// The configuration of an Envoy with this filter, these routes and the cluster of its service.
pub(super) fn bootstrap_with(ports: &Ports, filter: &str, routes: &str, service: &str) -> String {
    let limited = listener("limited", ports.limited, filter, routes);
    let answer = "              - match: { prefix: / }
                direct_response: { status: 200, body: { inline_string: served } }\n";
    let served = listener("upstream", ports.upstream, "", answer);
    let upstream = cluster("upstream", &[ports.upstream], "");
    let admin = ports.admin;
    format!(
        "admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {admin} }} }} }}
static_resources:\n  listeners:\n{limited}{served}  clusters:\n{upstream}{service}"
    )
}

fn listener(name: &str, port: u16, filters: &str, routes: &str) -> String {
    format!(
        "  - name: {name}
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': {TYPE_URL}.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: {name}
          use_remote_address: true
          http_filters:
{filters}          - name: envoy.filters.http.router
            typed_config: {{ '@type': {TYPE_URL}.http.router.v3.Router }}
          route_config:
            virtual_hosts:
            - name: all
              domains: ['*']
              routes:
{routes}"
    )
}

/// The routes of all tests. Other paths have no limit.
fn routes() -> String {
    let limited = |(path, action, limit): &(&str, &str, &str)| {
        let limit = match *limit {
            "" => String::new(),
            limit => format!(", limit: {{ rate_limit: {limit} }}"),
        };
        // A header that is missing drops its descriptor, so both can stand here.
        let second = match *path {
            "/similar" => {
                ", { actions: [{ request_headers: { header_name: x-a-b, descriptor_key: a_b } }] }"
            }
            _ => "",
        };
        format!(
            "              - match: {{ prefix: {path} }}
                route:
                  cluster: upstream
                  rate_limits: [{{ actions: [{{ {action} }}]{limit} }}{second}]\n"
        )
    };
    let metered = |(path, limits): &(&str, &str)| {
        format!(
            "              - match: {{ prefix: {path} }}
                route: {{ cluster: upstream }}
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    '@type': {TYPE_URL}.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits: [{limits}]\n"
        )
    };
    let unlimited = "              - match: { prefix: / }
                route: { cluster: upstream }\n";
    let limited = ROUTES.iter().map(limited);
    let all: Vec<String> = limited
        .chain(METERED.iter().map(metered))
        .chain([unlimited.to_owned()])
        .collect();
    all.concat()
}

/// The cluster of the service.
pub(super) fn service_cluster(ports: &Ports) -> String {
    cluster(
        "service",
        &ports.services,
        &service_options(FilterOptions::Strict),
    )
}

/// The rate limit filter.
fn filter(options: FilterOptions) -> String {
    let failing = match options {
        FilterOptions::Strict => "timeout: 10s\n              failure_mode_deny: true",
        FilterOptions::FailOpen => "timeout: 1s\n              failure_mode_deny: false",
    };
    format!(
        "          - name: envoy.filters.http.ratelimit
            typed_config:
              '@type': {TYPE_URL}.http.ratelimit.v3.RateLimit
              domain: edge
              {failing}
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              enable_retry_after_header: true
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {{ envoy_grpc: {{ cluster_name: service }} }}\n"
    )
}

fn cluster(name: &str, ports: &[u16], options: &str) -> String {
    let endpoint = |port: &u16| {
        format!(
            "        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}\n"
        )
    };
    let endpoints: Vec<String> = ports.iter().map(endpoint).collect();
    let endpoints = endpoints.concat();
    format!(
        "  - name: {name}
    type: STATIC
{options}    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:
{endpoints}"
    )
}

/// The protocol of the rate limit service, and its health checks.
fn service_options(options: FilterOptions) -> String {
    let http2 = "    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }\n";
    // An Envoy with several services leaves one that drains.
    let health = match options {
        FilterOptions::Strict => "",
        FilterOptions::FailOpen => {
            "    health_checks:
    - timeout: 5s
      interval: 0.1s
      no_traffic_interval: 0.1s
      unhealthy_interval: 0.1s
      unhealthy_threshold: 1
      healthy_threshold: 1
      grpc_health_check: { service_name: ratelimit }\n"
        }
    };
    http2.to_owned() + health
}
