//! Bodies of unknown length under `cost = "body"`.

mod common;

use std::convert::Infallible;

use bytes::Bytes;
use common::{from, limiter, start};
use futures_util::stream;
use http::{Request, Response, StatusCode, Version};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use ratelimit_core::Limiter;
use ratelimit_http::policy::HttpPolicy;
use ratelimit_tower::{CountBodyLayer, RateLimitLayer};
use tower::{Layer as _, ServiceExt as _, service_fn};

/// A service that reads at most this many parts of a body and responds with this status.
#[derive(Clone, Copy)]
struct Upload {
    parts: usize,
    status: StatusCode,
}

const ALL: Upload = Upload {
    parts: usize::MAX,
    status: StatusCode::OK,
};

fn policy(name: &str, limits: &str) -> HttpPolicy {
    let policy = HttpPolicy::parse(name, limits).expect("the limits of a test");
    policy.with_cost_source("body".parse().expect("a source"))
}

/// A request of four parts of 100 bytes over HTTP/2, without a length.
fn request() -> Request<impl Body<Data = Bytes, Error = Infallible>> {
    let part = || Ok(Frame::data(Bytes::from_static(&[0; 100])));
    let body = StreamBody::new(stream::iter((0..4).map(move |_| part())));
    let request = from("203.0.113.7").method("POST").version(Version::HTTP_2);
    request.body(body).expect("a request")
}

/// Sends a request through both layers, and returns its status.
async fn send(outer: &RateLimitLayer, inner: &RateLimitLayer, upload: Upload) -> StatusCode {
    let service = service_fn(move |request: Request<_>| async move {
        let mut body = request.into_body();
        let mut parts = 0;
        while parts < upload.parts && BodyExt::frame(&mut body).await.is_some() {
            parts += 1;
        }
        let mut response = Response::new(Full::new(Bytes::new()));
        *response.status_mut() = upload.status;
        Ok::<_, Infallible>(response)
    });
    let service = CountBodyLayer.layer(outer.layer(inner.layer(service)));
    let response = service.oneshot(request()).await.expect("infallible");
    let status = response.status();
    response.into_body().collect().await.expect("infallible");
    status
}

async fn remaining(limiter: &Limiter, policy: &HttpPolicy) -> u64 {
    let key = ratelimit_core::Key::ip("203.0.113.7".parse().expect("an address"));
    let verdict = limiter.peek(policy.policy(), &key).await;
    verdict.decision().expect("it is in memory").remaining
}

#[tokio::test]
async fn every_policy_is_charged_the_bytes_that_were_read() {
    let limiter = limiter(&start());
    let (wide, narrow) = (policy("wide", "1000/min"), policy("narrow", "500/min"));
    let outer = RateLimitLayer::new(limiter.clone(), wide.clone());
    let inner = RateLimitLayer::new(limiter.clone(), narrow.clone().shadow());

    assert_eq!(send(&outer, &inner, ALL).await, StatusCode::OK);
    assert_eq!(remaining(&limiter, &wide).await, 600);
    assert_eq!(remaining(&limiter, &narrow).await, 100);

    assert_eq!(send(&outer, &inner, ALL).await, StatusCode::OK);
    assert_eq!(remaining(&limiter, &wide).await, 200);
    assert_eq!(remaining(&limiter, &narrow).await, 0, "not below 0");

    assert_eq!(send(&outer, &inner, ALL).await, StatusCode::OK, "shadow");
    assert_eq!(remaining(&limiter, &wide).await, 0);
    let denied = send(&outer, &inner, ALL).await;
    assert_eq!(denied, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_body_that_is_dropped_costs_the_part_that_was_read() {
    let limiter = limiter(&start());
    let (wide, narrow) = (policy("wide", "1000/min"), policy("narrow", "500/min"));
    let outer = RateLimitLayer::new(limiter.clone(), wide.clone());
    let inner = RateLimitLayer::new(limiter.clone(), narrow);

    send(&outer, &inner, Upload { parts: 1, ..ALL }).await;
    assert_eq!(remaining(&limiter, &wide).await, 900);
    send(&outer, &inner, Upload { parts: 0, ..ALL }).await;
    assert_eq!(remaining(&limiter, &wide).await, 899, "the policy's cost");
}

#[tokio::test]
async fn a_body_that_was_read_before_the_check_costs_its_bytes() {
    let limiter = limiter(&start());
    let (wide, narrow) = (policy("wide", "1000/min"), policy("narrow", "500/min"));
    let outer = RateLimitLayer::new(limiter.clone(), wide.clone());
    let inner = RateLimitLayer::new(limiter.clone(), narrow.clone());
    let send = async || {
        let service = service_fn(async |_: Request<Full<Bytes>>| {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
        });
        let inner = inner.layer(service);
        let buffering = service_fn(move |request: Request<_>| {
            let inner = inner.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = BodyExt::collect(body).await.expect("infallible");
                let body = Full::new(body.to_bytes());
                inner.oneshot(Request::from_parts(head, body)).await
            }
        });
        let service = CountBodyLayer.layer(outer.layer(buffering));
        let response = service.oneshot(request()).await.expect("infallible");
        response.status()
    };

    assert_eq!(send().await, StatusCode::OK);
    assert_eq!(remaining(&limiter, &wide).await, 600);
    assert_eq!(remaining(&limiter, &narrow).await, 100);

    assert_eq!(send().await, StatusCode::TOO_MANY_REQUESTS, "400 of 100");
    assert_eq!(remaining(&limiter, &narrow).await, 100);
}

#[tokio::test]
async fn the_response_can_refund_or_settle_a_counted_body() {
    let limiter = limiter(&start());
    let refunded = policy("refunded", "1000/min").with_charge_on("5xx".parse().unwrap());
    let settled = policy("settled", "1000/min");
    let settled = settled.with_settle_source("response-bytes".parse().unwrap());
    let outer = RateLimitLayer::new(limiter.clone(), refunded.clone());
    let inner = RateLimitLayer::new(limiter.clone(), settled.clone());

    send(&outer, &inner, ALL).await;

    assert_eq!(remaining(&limiter, &refunded).await, 1000);
    assert_eq!(
        remaining(&limiter, &settled).await,
        1000,
        "an empty response"
    );
}
