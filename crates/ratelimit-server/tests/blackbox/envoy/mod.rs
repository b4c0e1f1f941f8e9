//! Envoy's rate limit service: its gRPC calls, its rules, and a real Envoy.

#[cfg(feature = "acceptance")]
mod acceptance;
mod deadlines;
mod explain;
mod failover;
mod grpc;
mod health;
mod hostile;
mod json;
mod metrics;
mod migration;
mod native;
mod pages;
mod process;
mod proxy;
mod quota;
mod quota_client;
mod quota_grpc;
mod settings;
mod shared;
mod tls;
mod unix_socket;
mod xds;

use std::{fs, net::SocketAddr, process::Command};

use prost::Message as _;

use ratelimit_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_response::Code,
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use tempfile::TempDir;
use tonic::{Status, transport::Channel};

use crate::server::{Server, until, write_atomically};

/// A server for Envoy, and the directory of its rules.
struct EnvoyServer {
    server: Server,
    addr: SocketAddr,
    rules: TempDir,
}

impl EnvoyServer {
    fn start(rules: &str, args: &[&str]) -> EnvoyServer {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("rules.yaml"), rules).unwrap();
        EnvoyServer::start_in(dir, args)
    }

    fn start_in(rules: TempDir, args: &[&str]) -> EnvoyServer {
        let path = rules.path().to_str().unwrap().to_owned();
        let own = ["--envoy-listen", "127.0.0.1:0", "--envoy-config", &path];
        let own = if args.contains(&"--envoy-listen") {
            &own[2..]
        } else {
            &own
        };
        let args = [own, args].concat();
        EnvoyServer::start_with(rules, &args)
    }

    fn start_with(rules: TempDir, args: &[&str]) -> EnvoyServer {
        EnvoyServer::of(Server::start(args), rules)
    }

    /// A server that was started with a TCP address for Envoy.
    fn of(server: Server, rules: TempDir) -> EnvoyServer {
        let addr: SocketAddr = envoy_listen(&server.banner).parse().unwrap();
        EnvoyServer {
            server,
            addr: (std::net::Ipv4Addr::LOCALHOST, addr.port()).into(),
            rules,
        }
    }

    /// Starts a server that has connected to its Redis.
    async fn start_connected(rules: &str, url: &str, args: &[&str]) -> EnvoyServer {
        let shared = ["--redis", url];
        let envoy = EnvoyServer::start(rules, &[&shared, args].concat());
        until(async || {
            let ready = envoy.server.get("/actuator/health/readiness").await;
            (ready.status == 200).then_some(())
        })
        .await;
        envoy
    }

    fn write_rules(&self, rules: &str) {
        write_atomically(&self.rules.path().join("rules.yaml"), rules);
    }

    async fn channel(&self) -> Channel {
        let endpoint = Channel::from_shared(format!("http://{}", self.addr)).unwrap();
        endpoint.connect().await.unwrap()
    }

    async fn ask(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let mut client = RateLimitServiceClient::new(self.channel().await);
        let response = client.should_rate_limit(request).await?;
        Ok(response.into_inner())
    }

    /// The codes of many requests at once, over one connection.
    async fn codes(&self, requests: impl IntoIterator<Item = RateLimitRequest>) -> Vec<Code> {
        codes_over(self.channel().await, requests).await
    }

    /// How much the limit of an entry has left, by a look.
    async fn remaining(&self, key: &str, value: &[u8]) -> u32 {
        let mut look = request("edge", key, value);
        look.descriptors[0].hits_addend = Some(0);
        let response = self.ask(look).await.unwrap();
        response.statuses[0].limit_remaining
    }

    /// The sum of the lines of a metric that contain a text.
    async fn metric(&self, name: &str, label: &str) -> u64 {
        let page = self.server.get("/actuator/prometheus").await.body;
        let lines = page
            .lines()
            .filter(|line| line.starts_with(name) && line.contains(label));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        values.sum()
    }
}

/// The address for Envoy in the text that a server prints.
fn envoy_listen(banner: &str) -> &str {
    let (_, addr) = banner.split_once("  envoy      ").unwrap();
    addr.split(' ').next().unwrap()
}

/// The codes of many requests at once over one connection.
async fn codes_over(
    channel: Channel,
    requests: impl IntoIterator<Item = RateLimitRequest>,
) -> Vec<Code> {
    let client = RateLimitServiceClient::new(channel);
    let calls = requests.into_iter().map(|request| {
        let mut client = client.clone();
        async move { client.should_rate_limit(request).await.unwrap() }
    });
    let responses = futures_util::future::join_all(calls).await;
    let responses = responses.into_iter().map(tonic::Response::into_inner);
    responses.map(|response| response.overall_code()).collect()
}

fn request(domain: &str, key: &str, value: &[u8]) -> RateLimitRequest {
    let entry = Entry {
        key: key.to_owned().into(),
        value: value.to_vec().into(),
    };
    RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![entry],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    }
}

/// Adds a descriptor to a request.
fn and(mut first: RateLimitRequest, key: &str, value: &[u8]) -> RateLimitRequest {
    first
        .descriptors
        .extend(request("edge", key, value).descriptors);
    first
}

/// The response to a call by curl, which unlike tonic's client does not give up at `grpc-timeout` by itself.
fn ask_by_curl(
    url: &str,
    request: &RateLimitRequest,
    args: &[&str],
) -> Result<RateLimitResponse, String> {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let message = request.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let framed = [&[0][..], &length, &message].concat();
    fs::write(path("request"), framed).unwrap();
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "50", "-X", "POST"])
        .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
        .args(["--data-binary", &format!("@{}", path("request"))])
        .args(args)
        .arg(format!(
            "{url}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        ))
        .output()
        .unwrap();
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).unwrap());
    }
    let message = output.stdout.get(5..).ok_or("there is no message")?;
    RateLimitResponse::decode(message).map_err(|error| error.to_string())
}
