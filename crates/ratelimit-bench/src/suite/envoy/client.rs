//! The callers: Envoy's protocol over HTTP/2, and REST over connections that stay open.

use std::{net::SocketAddr, sync::Arc};

use ratelimit_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{
        RateLimitRequest, rate_limit_response::Code,
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Mutex,
};
use tonic::transport::{Channel, Endpoint};

use crate::rest::is_whole;

const KEYS: [&str; 4] = ["user", "path", "tenant", "remote_address"];

/// A client of the rate limit service with several connections.
#[derive(Clone, Debug)]
pub(super) struct RlsClient {
    channels: Arc<[Channel]>,
    descriptors: usize,
}

impl RlsClient {
    pub(super) async fn connect(
        addr: SocketAddr,
        connections: usize,
        descriptors: usize,
    ) -> RlsClient {
        let endpoint = Endpoint::from_shared(format!("http://{addr}")).expect("an address");
        let mut channels = Vec::new();
        for _ in 0..connections {
            channels.push(endpoint.connect().await.expect("the server answers"));
        }
        RlsClient {
            channels: channels.into(),
            descriptors,
        }
    }

    /// Sends a request with a value of its own in each descriptor, and insists that it passes.
    pub(super) async fn should_rate_limit(self, key: usize) {
        let descriptors = KEYS
            .iter()
            .take(self.descriptors)
            .map(|name| RateLimitDescriptor {
                entries: vec![Entry {
                    key: (*name).into(),
                    value: format!("{key:08}").into(),
                }],
                ..RateLimitDescriptor::default()
            });
        let request = RateLimitRequest {
            domain: "bench".into(),
            descriptors: descriptors.collect(),
            hits_addend: 0,
        };
        let channel = self.channels[key % self.channels.len()].clone();
        let mut client = RateLimitServiceClient::new(channel);
        let response = client.should_rate_limit(request).await;
        let response = response.expect("the server answers").into_inner();
        assert_eq!(response.overall_code(), Code::Ok);
        assert!(
            response
                .statuses
                .iter()
                .all(|status| status.current_limit.is_some())
        );
    }
}

/// A client of the REST API, with as many connections as requests are under way.
#[derive(Clone, Debug)]
pub(super) struct RestClient {
    addr: SocketAddr,
    idle: Arc<Mutex<Vec<TcpStream>>>,
}

impl RestClient {
    pub(super) fn new(addr: SocketAddr) -> RestClient {
        RestClient {
            addr,
            idle: Arc::default(),
        }
    }

    /// Checks a key, and insists that it passes.
    pub(super) async fn check(self, key: usize) {
        let idle = self.idle.lock().await.pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => TcpStream::connect(self.addr)
                .await
                .expect("the server answers"),
        };
        let request = format!(
            "GET /api/v1/rate-limit/check?policy=bench&key={key:08} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        );
        connection
            .write_all(request.as_bytes())
            .await
            .expect("the server reads");
        let mut response = Vec::with_capacity(1_024);
        while !is_whole(&response) {
            let read = connection.read_buf(&mut response).await;
            assert!(read.expect("the server answers") > 0, "the server hung up");
        }
        assert!(response.starts_with(b"HTTP/1.1 200 "));
        self.idle.lock().await.push(connection);
    }
}
