//! What the tests of the layer share.

#![allow(dead_code, reason = "each test binary uses its share")]

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use ratelimit_core::{
    Clock, KeySet, Limiter, MemoryStore, Policy, Timestamp,
    store::{Charged, Hit, Store, StoreError, StoreFuture},
};
use ratelimit_tower::{PeerAddr, RateLimitLayer};
use tower::{Layer as _, Service, ServiceExt as _};

/// A moment in the middle of a second.
pub(crate) fn start() -> Clock {
    Clock::manual(Timestamp::from_micros(1_000_500_000))
}

pub(crate) fn layer(clock: &Clock, limits: &str) -> RateLimitLayer {
    RateLimitLayer::new(limiter(clock), policy(limits))
}

pub(crate) fn limiter(clock: &Clock) -> Limiter {
    Limiter::new(MemoryStore::new().clock(clock.clone()))
}

pub(crate) fn policy(limits: &str) -> Policy {
    Policy::parse("login", limits).expect("the limits of a test")
}

pub(crate) fn from(peer: &str) -> http::request::Builder {
    let peer: SocketAddr = format!("{peer}:4711").parse().expect("an address");
    Request::builder().extension(PeerAddr(peer))
}

pub(crate) fn get() -> Request<()> {
    from("203.0.113.7").body(()).expect("a request")
}

pub(crate) type Answer = Response<Full<Bytes>>;

pub(crate) async fn hello(_: Request<()>) -> Result<Answer, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

/// Sends `request` through the layer to a service that says hello.
pub(crate) async fn send(layer: &RateLimitLayer, request: Request<()>) -> Response<Bytes> {
    send_to(layer, tower::service_fn(hello), request).await
}

pub(crate) async fn send_to<S>(
    layer: &RateLimitLayer,
    inner: S,
    request: Request<()>,
) -> Response<Bytes>
where
    S: Service<Request<()>, Response = Answer, Error = Infallible> + Clone,
{
    let Ok(response) = layer.layer(inner).oneshot(request).await;
    let (parts, body) = response.into_parts();
    let Ok(body) = body.collect().await;
    Response::from_parts(parts, body.to_bytes())
}

pub(crate) fn header<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    let mut lines = response.headers().get_all(name).iter();
    let value = lines.next()?;
    assert_eq!(lines.next(), None, "{name} stands twice");
    Some(value.to_str().expect("visible ASCII"))
}

pub(crate) fn number<B>(response: &Response<B>, name: &str) -> Option<u64> {
    header(response, name).map(|value| value.parse().expect("a number"))
}

/// A store that does not answer.
#[derive(Debug)]
pub(crate) struct Down;

impl Store for Down {
    fn hit(&self, _: Hit<'_>) -> StoreFuture<Charged> {
        StoreFuture::ready(Err(StoreError::Unavailable { source: None }))
    }

    fn reset(&self, _: &Policy, _: &KeySet) -> StoreFuture<()> {
        StoreFuture::ready(Err(StoreError::Unavailable { source: None }))
    }
}

/// A store that answers later, as one behind a network does.
#[derive(Debug)]
pub(crate) struct Distant(pub(crate) MemoryStore);

impl Store for Distant {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        let (store, policy, key, cost) = (
            self.0.clone(),
            hit.policy.clone(),
            hit.key.clone(),
            hit.cost,
        );
        StoreFuture::pending(async move {
            tokio::task::yield_now().await;
            store.hit(Hit::new(&policy, &key).cost(cost)).await
        })
    }

    fn reset(&self, policy: &Policy, key: &KeySet) -> StoreFuture<()> {
        self.0.reset(policy, key)
    }
}
