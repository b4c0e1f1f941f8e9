//! The health service and the reflection services.

use std::time::{Duration, Instant};

use prost::Message as _;
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};
use tonic_reflection::pb::{v1, v1alpha};

use super::{EnvoyServer, request};

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 2 } }
";

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

#[tokio::test]
async fn a_watcher_learns_that_the_server_drains_and_does_not_hold_it_up() {
    let mut envoy = EnvoyServer::start(RULES, &["--drain-delay", "1s"]);
    let mut health = HealthClient::new(envoy.channel().await);
    let watched = HealthCheckRequest {
        service: SERVICE.to_owned(),
    };
    let mut changes = health.watch(watched).await.unwrap().into_inner();
    let mut next = async || {
        let change: Option<HealthCheckResponse> = changes.message().await.unwrap_or_default();
        change.map(|change| change.status())
    };
    assert_eq!(next().await, Some(ServingStatus::Serving));

    envoy.server.signal("TERM");
    let signalled = Instant::now();

    assert_eq!(next().await, Some(ServingStatus::NotServing));
    // The stream ends, so that its connection can end before the shutdown timeout of 20 seconds.
    assert_eq!(next().await, None);
    assert!(envoy.server.ended().await.success());
    assert!(signalled.elapsed() < Duration::from_secs(15));
}

/// The names of the services that reflection v1 lists.
async fn listed_v1(envoy: &EnvoyServer) -> Result<Vec<String>, tonic::Status> {
    use v1::{
        ServerReflectionRequest, server_reflection_request::MessageRequest,
        server_reflection_response::MessageResponse,
    };
    let mut client =
        v1::server_reflection_client::ServerReflectionClient::new(envoy.channel().await);
    let asked = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let responses = client.server_reflection_info(futures_util::stream::iter([asked]));
    let response = responses.await?.into_inner().message().await?.unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = response.message_response else {
        panic!("{response:?}");
    };
    Ok(list
        .service
        .into_iter()
        .map(|service| service.name)
        .collect())
}

#[tokio::test]
async fn reflection_describes_the_services() {
    let envoy = EnvoyServer::start(RULES, &["--envoy-reflection"]);

    let names = listed_v1(&envoy).await.unwrap();

    for name in [
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
    ] {
        assert!(names.iter().any(|listed| listed == name), "{names:?}");
    }
    // The discovery service is one that the server calls, and not one that it serves.
    assert!(
        !names.iter().any(|name| name.contains("Discovery")),
        "{names:?}"
    );
    let file = file_v1alpha(&envoy, SERVICE).await;
    assert_eq!(file.service[0].method[0].name(), "ShouldRateLimit");
    let descriptor = file_v1alpha(
        &envoy,
        "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor",
    )
    .await;
    assert_eq!(descriptor.package(), "envoy.extensions.common.ratelimit.v3");
}

/// The descriptor of the file with a symbol, by reflection v1alpha.
async fn file_v1alpha(envoy: &EnvoyServer, symbol: &str) -> prost_types::FileDescriptorProto {
    use v1alpha::{
        ServerReflectionRequest, server_reflection_request::MessageRequest,
        server_reflection_response::MessageResponse,
    };
    let mut client =
        v1alpha::server_reflection_client::ServerReflectionClient::new(envoy.channel().await);
    let asked = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(symbol.to_owned())),
    };
    let responses = client.server_reflection_info(futures_util::stream::iter([asked]));
    let response = responses.await.unwrap().into_inner().message().await;
    let Some(MessageResponse::FileDescriptorResponse(files)) =
        response.unwrap().unwrap().message_response
    else {
        panic!("{symbol} has no file");
    };
    prost_types::FileDescriptorProto::decode(&*files.file_descriptor_proto[0]).unwrap()
}

#[tokio::test]
async fn reflection_is_off_by_default() {
    let envoy = EnvoyServer::start(RULES, &[]);

    let refused = listed_v1(&envoy).await.unwrap_err();

    assert_eq!(refused.code(), tonic::Code::Unimplemented);
    assert!(envoy.ask(request("edge", "user", b"a")).await.is_ok());
}
