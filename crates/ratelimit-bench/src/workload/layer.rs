//! Requests through the tower layer, without a framework around it.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::SocketAddr,
};

use http::{Request, Response};
use ratelimit_core::{Limiter, Policy};
use ratelimit_http::response::HeaderStyle;
use ratelimit_tower::{PeerAddr, RateLimitLayer};
use tower::{Layer as _, Service, service_fn};

use super::{Work, poll_now};

/// How the names of all these works begin.
pub const PREFIX: &str = "layer.";

/// The request without the layer.
pub const BARE: &str = "layer.bare";

/// A request that the layer lets pass without and with header fields, and one that it denies; and the
/// same request without the layer.
pub fn requests() -> Vec<Work> {
    let through = |style| layer("1000000/s").headers(style).layer(service_fn(hello));
    let denying = layer("1/d").headers(HeaderStyle::XRateLimit);
    vec![
        request(BARE, service_fn(hello)),
        request("layer.allowed", through(HeaderStyle::None)),
        request("layer.three_headers", through(HeaderStyle::XRateLimit)),
        request("layer.denied", denying.layer(service_fn(hello))),
    ]
}

fn layer(limits: &str) -> RateLimitLayer {
    let policy = Policy::parse("counted", limits).expect("limits that are well formed");
    RateLimitLayer::new(Limiter::in_memory(), policy)
}

fn hello(_: Request<()>) -> Ready<Result<Response<String>, Infallible>> {
    ready(Ok(Response::new(String::new())))
}

fn request<S>(name: &str, mut service: S) -> Work
where
    S: Service<Request<()>, Error = Infallible> + 'static,
{
    Work::new(name, move || {
        let mut request = Request::new(());
        let peer = SocketAddr::from(([203, 0, 113, 7], 4711));
        request.extensions_mut().insert(PeerAddr(peer));
        let answered = poll_now(service.call(request));
        assert!(answered.is_ok());
    })
}
