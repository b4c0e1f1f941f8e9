//! `cargo run -p ratelimit-examples --bin tonic_grpc`: asks a gRPC server of its own 4 times, 2 get `RESOURCE_EXHAUSTED`.

use ratelimit_core::{Limiter, Policy};
use ratelimit_tower::{ClientKey, RateLimitLayer};
use tonic::{
    Code,
    transport::{Channel, Server, server::TcpConnectInfo, server::TcpIncoming},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // tonic knows the peer, and tells it in the request's extensions.
    let client = ClientKey::new().peer_by(|request| {
        let connection = request.extensions.get::<TcpConnectInfo>()?;
        Some(connection.remote_addr()?.ip())
    });
    let policy = Policy::parse("grpc", "2/h")?;
    let limit = RateLimitLayer::new(Limiter::in_memory(), policy).key_by(client);

    let (_reporter, health) = tonic_health::server::health_reporter();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let url = format!("http://{}", incoming.local_addr()?);
    let server = Server::builder().layer(limit).add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));

    let channel = Channel::from_shared(url)?.connect().await?;
    let mut health = HealthClient::new(channel);
    let (mut answered, mut exhausted) = (0, 0);
    for _ in 0..4 {
        match health.check(HealthCheckRequest::default()).await {
            Ok(_) => answered += 1,
            Err(status) if status.code() == Code::ResourceExhausted => exhausted += 1,
            Err(status) => return Err(status.into()),
        }
    }
    println!("{answered} answered, {exhausted} RESOURCE_EXHAUSTED");
    Ok(())
}
