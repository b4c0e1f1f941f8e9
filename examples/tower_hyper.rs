//! `cargo run -p ratelimit-examples --bin tower_hyper`, then `curl -i localhost:3000`: the 6th within a second gets 429.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use ratelimit_core::{Limiter, Policy};
use ratelimit_tower::{AddPeerAddr, RateLimitLayer};
use tower::{Layer, service_fn};

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = RateLimitLayer::new(Limiter::in_memory(), Policy::parse("api", "5/s")?);
    // Layered once, outside of the loop: all connections share the budgets.
    let limited = limit.layer(service_fn(hello));

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept().await?;
        let service = TowerToHyperService::new(AddPeerAddr::new(limited.clone(), peer));
        tokio::spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            // A client that goes away is no failure of the server.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
