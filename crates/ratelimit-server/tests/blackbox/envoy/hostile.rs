//! Peers that send anything at all: the server stays up, and answers others.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestRunner},
};
use prost::Message as _;
use ratelimit_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::{
        RateLimitDescriptor,
        rate_limit_descriptor::{Entry, RateLimitOverride},
    },
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_response::Code,
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, runtime::Runtime};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::Channel,
};

use super::{EnvoyServer, request};
use crate::{raw_http2, server::PATIENCE};

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 1000000 } }
  - { key: a, value: '*b*', share_threshold: true, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: a, quota_mode: true, rate_limit: { unit: second, requests_per_unit: 2 } }
  - { key: b, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - { key: c, value_to_metric: true, rate_limit: { unit: year, requests_per_unit: 1 } }
";

const ARGS: &[&str] = &["--envoy-ratelimit-metrics", "--envoy-dynamic-metadata"];

impl EnvoyServer {
    /// Asserts that another client is answered in time.
    async fn assert_answers(&self) {
        let asked = self.ask(request("edge", "user", b"bystander"));
        let answered = tokio::time::timeout(PATIENCE, asked).await;
        let response = answered.expect("it answers").expect("it is up");
        assert_eq!(response.overall_code(), Code::Ok);
    }
}

/// Sends bytes as they are and returns those of the response.
#[derive(Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = RawCodec;
    type Decoder = RawCodec;

    fn encoder(&mut self) -> RawCodec {
        RawCodec
    }

    fn decoder(&mut self) -> RawCodec {
        RawCodec
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&bytes);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}

/// Calls the service with a message of any bytes.
async fn call_raw(channel: &Channel, message: Vec<u8>) -> Result<RateLimitResponse, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let path = http::uri::PathAndQuery::from_static(path);
    let response = client.unary(tonic::Request::new(message), path, RawCodec);
    let bytes = response.await?.into_inner();
    Ok(RateLimitResponse::decode(&*bytes).expect("a response"))
}

/// Runs a property on a server, with a channel to it.
fn check_on_server<T: std::fmt::Debug>(
    inputs: impl Strategy<Value = T>,
    cases: u32,
    property: impl Fn(&Runtime, &EnvoyServer, &Channel, T) -> Result<(), TestCaseError>,
) {
    let runtime = Runtime::new().unwrap();
    let envoy = EnvoyServer::start(RULES, ARGS);
    let channel = runtime.block_on(envoy.channel());
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let checked =
        TestRunner::new(config).run(&inputs, |input| property(&runtime, &envoy, &channel, input));
    checked.unwrap();
    runtime.block_on(envoy.assert_answers());
}

fn entry() -> impl Strategy<Value = Entry> {
    let key = prop_oneof![
        Just(b"user".to_vec()),
        Just(b"a".to_vec()),
        Just(b"b".to_vec()),
        Just(b"c".to_vec()),
        vec(any::<u8>(), 0..40),
    ];
    (key, vec(any::<u8>(), 0..300)).prop_map(|(key, value)| Entry {
        key: key.into(),
        value: value.into(),
    })
}

fn descriptor() -> impl Strategy<Value = RateLimitDescriptor> {
    let limit = (any::<u32>(), -2..10_i32, any::<Option<u32>>());
    let limit = limit.prop_map(
        |(requests_per_unit, unit, unit_multiplier)| RateLimitOverride {
            requests_per_unit,
            unit,
            unit_multiplier,
        },
    );
    (
        vec(entry(), 0..5),
        proptest::option::of(limit),
        any::<Option<u64>>(),
        any::<bool>(),
    )
        .prop_map(
            |(entries, limit, hits_addend, is_negative_hits)| RateLimitDescriptor {
                entries,
                limit,
                hits_addend,
                is_negative_hits,
            },
        )
}

#[test]
fn no_call_fails_because_of_bytes_of_a_client() {
    let inputs = (vec(descriptor(), 1..8), any::<u32>());
    check_on_server(
        inputs,
        400,
        |runtime, _, channel, (descriptors, hits_addend)| {
            let count = descriptors.len();
            let asked = RateLimitRequest {
                domain: "edge".to_owned(),
                descriptors,
                hits_addend,
            };
            let mut client = RateLimitServiceClient::new(channel.clone());
            let response = runtime.block_on(client.should_rate_limit(asked));
            let response = response.map_err(|status| TestCaseError::fail(status.to_string()))?;
            let response = response.into_inner();
            prop_assert_eq!(response.statuses.len(), count);
            prop_assert_ne!(response.overall_code(), Code::Unknown);
            Ok(())
        },
    );
}

#[test]
fn random_messages_are_answered_or_refused() {
    let mutated = (
        vec(descriptor(), 1..4),
        vec((any::<usize>(), any::<u8>()), 0..6),
    );
    let mutated = mutated.prop_map(|(descriptors, changes)| {
        let domain = "edge".to_owned();
        let request = RateLimitRequest {
            domain,
            descriptors,
            hits_addend: 1,
        };
        let mut bytes = request.encode_to_vec();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes
    });
    let inputs = prop_oneof![Just(Vec::new()), vec(any::<u8>(), 0..400), mutated];
    check_on_server(inputs, 600, |runtime, _, channel, message| {
        if let Err(status) = runtime.block_on(call_raw(channel, message)) {
            let is_refused = matches!(
                status.code(),
                tonic::Code::InvalidArgument | tonic::Code::Internal
            );
            prop_assert!(is_refused, "{status:?}");
        }
        Ok(())
    });
}

#[test]
fn random_frames_end_only_their_own_connection() {
    let frames = vec(
        (any::<u8>(), any::<u8>(), 0..6_u32, vec(any::<u8>(), 0..100)),
        0..8,
    );
    let frames = frames.prop_map(|frames| {
        let frames = frames.iter().map(|(kind, flags, stream, payload)| {
            raw_http2::frame(kind % 12, *flags, *stream, payload)
        });
        frames.collect::<Vec<_>>().concat()
    });
    let inputs = (
        any::<bool>(),
        any::<bool>(),
        prop_oneof![vec(any::<u8>(), 0..400), frames],
        any::<usize>(),
    );
    check_on_server(
        inputs,
        200,
        |runtime, envoy, channel, (has_preface, has_call, bytes, cut)| {
            let mut sent = Vec::new();
            if has_preface {
                sent.extend([raw_http2::PREFACE, &raw_http2::settings(65_535)].concat());
            }
            if has_call {
                sent.extend(raw_http2::call_head(1));
            }
            sent.extend(&bytes);
            // Often a frame is cut off.
            sent.truncate(sent.len() - cut % (sent.len() / 4 + 1));
            runtime.block_on(async {
                let mut stream = TcpStream::connect(envoy.addr).await.unwrap();
                // The server may close it early.
                let _ = stream.write_all(&sent).await;
            });
            let message = request("edge", "user", b"bystander").encode_to_vec();
            let answered = runtime.block_on(call_raw(channel, message));
            prop_assert!(answered.is_ok(), "{answered:?}");
            Ok(())
        },
    );
}

#[tokio::test]
async fn idle_connections_and_slow_readers_disturb_nobody() {
    let envoy = EnvoyServer::start(RULES, ARGS);
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(TcpStream::connect(envoy.addr).await.unwrap());
    }
    let mut slow = Vec::new();
    let message = request("edge", "user", b"slow").encode_to_vec();
    for _ in 0..20 {
        // The server may send no byte of a response on these streams, and the peer reads nothing.
        let mut stream = raw_http2::connect(envoy.addr, 0).await;
        for call in 0..200 {
            let id = 2 * call + 1;
            let frames = [raw_http2::call_head(id), raw_http2::call_body(id, &message)].concat();
            stream.write_all(&frames).await.unwrap();
        }
        slow.push(stream);
    }

    envoy.assert_answers().await;

    let used = async || envoy.remaining("user", b"slow").await;
    // The calls were decided although their answers wait.
    crate::server::until(async || (used().await == 1_000_000 - 4_000).then_some(())).await;
    envoy.assert_answers().await;
    drop((idle, slow));
    envoy.assert_answers().await;
}

#[tokio::test]
async fn a_flood_of_resets_ends_only_its_own_connection() {
    let envoy = EnvoyServer::start(RULES, ARGS);
    let mut stream = raw_http2::connect(envoy.addr, 65_535).await;
    let flood = async {
        for call in 0..20_000_u32 {
            let id = 2 * call + 1;
            let frames = [raw_http2::call_head(id), raw_http2::reset(id)].concat();
            if stream.write_all(&frames).await.is_err() {
                return;
            }
        }
    };
    // The server may stop to read, and the flood then waits.
    let flooding = tokio::time::timeout(Duration::from_secs(10), flood);
    let bystander = async {
        for _ in 0..20 {
            envoy.assert_answers().await;
        }
    };
    let _ = futures_util::future::join(flooding, bystander).await;
    drop(stream);
    envoy.assert_answers().await;
}

#[tokio::test]
async fn a_message_of_100_megabytes_is_refused() {
    // Without metadata, so that no response is too large for this client.
    let envoy = EnvoyServer::start(RULES, &[]);
    let huge = request("edge", "user", &vec![b'x'; 100_000_000]);

    let refused = envoy.ask(huge).await.unwrap_err();

    assert_eq!(refused.code(), tonic::Code::OutOfRange);
    envoy.assert_answers().await;
}
