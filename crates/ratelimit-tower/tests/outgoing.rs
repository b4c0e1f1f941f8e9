//! The layer in front of a client.

mod common;

use std::{
    convert::Infallible, future::pending, io, pin::pin, task::Context, task::Waker, time::Duration,
};

use bytes::Bytes;
use common::{Answer, Down, limiter, policy, start};
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use ratelimit_core::{
    Clock, FailureMode, Key, KeySet, Limiter, MemoryStore, Policy, Timestamp,
    store::{Adjustment, Charged, Hit, Receipt, Settlement, Store, StoreFuture},
};
use ratelimit_tower::{KeyError, OutgoingError, OutgoingLimitLayer};
use tokio::time::Instant;
use tower::{Layer as _, Service as _, ServiceExt as _, limit::ConcurrencyLimit, service_fn};

async fn send(layer: &OutgoingLimitLayer, uri: &str) -> Result<(), OutgoingError<Infallible>> {
    let client = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let request = Request::builder().uri(uri).body(()).expect("a request");
    layer.layer(client).oneshot(request).await.map(drop)
}

#[tokio::test]
async fn a_request_over_its_limit_fails_unless_it_may_wait() {
    let layer = OutgoingLimitLayer::new(limiter(&start()), policy("1/h"));

    assert!(send(&layer, "http://a.example/").await.is_ok());
    assert!(send(&layer, "http://b.example/").await.is_ok());
    let error = send(&layer, "http://A.example/other").await.unwrap_err();

    let OutgoingError::Denied(decision) = error else {
        panic!("{error}");
    };
    assert_eq!(decision.retry_after(), Some(Duration::from_secs(3_600)));
}

/// A memory store on tokio's clock.
#[derive(Debug)]
struct OnTokiosClock {
    store: MemoryStore,
    clock: Clock,
    begin: Instant,
}

impl OnTokiosClock {
    fn start() -> OnTokiosClock {
        let clock = Clock::manual(Timestamp::from_secs(1_000));
        OnTokiosClock {
            store: MemoryStore::new().clock(clock.clone()),
            clock,
            begin: Instant::now(),
        }
    }
}

impl Store for OnTokiosClock {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        self.clock
            .set(Timestamp::from_secs(1_000) + self.begin.elapsed());
        self.store.hit(hit)
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        self.store.settle(receipt, change)
    }

    fn reset(&self, policy: &Policy, key: &KeySet) -> StoreFuture<()> {
        self.store.reset(policy, key)
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_waits_within_its_bound_and_no_longer() {
    let begin = Instant::now();
    let limiter = Limiter::new(OnTokiosClock::start());
    let layer =
        OutgoingLimitLayer::new(limiter, policy("1/s")).max_wait(Duration::from_millis(1_500));

    assert!(send(&layer, "http://a.example/").await.is_ok());
    let (one, other) = tokio::join!(
        send(&layer, "http://a.example/"),
        send(&layer, "http://a.example/")
    );

    assert_eq!(one.is_ok(), other.is_err());
    assert_eq!(begin.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shaping_limit_delays_a_client() {
    let begin = Instant::now();
    let limiter = Limiter::new(OnTokiosClock::start());
    let layer =
        OutgoingLimitLayer::new(limiter, policy("leaky_bucket 2/s")).max_wait(Duration::MAX);

    for _ in 0..5 {
        assert!(send(&layer, "http://a.example/").await.is_ok());
    }

    assert_eq!(begin.elapsed().as_millis(), 2_000);
}

#[tokio::test]
async fn a_missing_key_and_a_failing_store_are_distinct_errors() {
    let closed = Limiter::new(Down).failure_mode(FailureMode::Closed);
    let closed = OutgoingLimitLayer::new(closed, policy("1/s"));

    assert_eq!(
        send(&closed, "http://a.example/").await,
        Err(OutgoingError::Unavailable)
    );
    assert_eq!(
        send(&closed, "/relative").await,
        Err(OutgoingError::NoKey(KeyError::Missing))
    );
}

const ONE: &str = "concurrency 1 lease 1h";

fn to_a() -> Request<()> {
    let request = Request::builder().uri("http://a.example/");
    request.body(()).expect("a request")
}

async fn is_free(layer: &OutgoingLimitLayer) -> bool {
    send(layer, "http://a.example/").await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_not_enforced_neither_refuses_nor_delays() {
    let begin = Instant::now();
    for limits in [
        "1/h",
        "leaky_bucket 1/min queue 9",
        ONE,
        "1/h; leaky_bucket 1/min queue 9",
    ] {
        for shadow in [
            policy(limits).shadow(),
            policy(limits).with_enforcement(0).expect("a share"),
        ] {
            let limiter = Limiter::new(OnTokiosClock::start());
            let layer =
                OutgoingLimitLayer::new(limiter, shadow).max_wait(Duration::from_secs(3_600));
            for _ in 0..5 {
                assert_eq!(send(&layer, "http://a.example/").await, Ok(()), "{limits}");
            }
        }
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn a_slot_is_held_until_the_body_has_ended() {
    let layer = OutgoingLimitLayer::new(limiter(&start()), policy(ONE));

    let client = layer.layer(service_fn(common::hello));
    let mut response = client.oneshot(to_a()).await.expect("a free slot");
    assert_eq!(response.body().size_hint().exact(), Some(5));
    assert!(!is_free(&layer).await);
    let frame = response.frame().await.expect("a frame").expect("no error");

    assert_eq!(frame.into_data().ok(), Some(Bytes::from("hello")));
    assert!(
        is_free(&layer).await,
        "the body is at its end, and still there"
    );
    drop(response);
}

#[tokio::test]
async fn a_slot_is_released_with_the_body_that_is_dropped() {
    let layer = OutgoingLimitLayer::new(limiter(&start()), policy(ONE));

    let client = layer.layer(service_fn(common::hello));
    let response = client.oneshot(to_a()).await.expect("a free slot");
    assert!(!is_free(&layer).await);
    drop(response);

    assert!(is_free(&layer).await);
}

#[tokio::test]
async fn a_slot_is_released_when_the_client_fails() {
    let layer = OutgoingLimitLayer::new(limiter(&start()), policy(ONE));
    let failing = service_fn(async |_: Request<()>| Err::<Answer, _>(io::Error::other("broken")));

    let mut call = pin!(layer.layer(failing).oneshot(to_a()));
    let failed = call.as_mut().await;

    assert!(matches!(failed, Err(OutgoingError::Inner(_))));
    assert!(is_free(&layer).await, "the future is done, and still there");
}

#[tokio::test]
async fn a_slot_is_released_when_the_call_is_dropped() {
    let layer = OutgoingLimitLayer::new(limiter(&start()), policy(ONE));
    let endless = service_fn(async |_: Request<()>| pending::<Result<Answer, Infallible>>().await);

    let mut call = Box::pin(layer.layer(endless).oneshot(to_a()));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut cx).is_pending());
    assert!(!is_free(&layer).await);
    drop(call);

    assert!(is_free(&layer).await);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_not_held_by_a_request_that_would_wait_too_long() {
    let limiter = Limiter::new(OnTokiosClock::start());
    let both = policy("leaky_bucket 1/min queue 9; concurrency 1 lease 1h");
    let layer = OutgoingLimitLayer::new(limiter.clone(), both.clone());

    assert!(is_free(&layer).await);
    assert!(!is_free(&layer).await, "it would wait a minute");

    let key = Key::tagged("host", "a.example").expect("a key");
    let look = limiter.peek(&both, &key).await;
    let slots = look.decision().expect("a decision").limits().nth(1);
    assert_eq!(slots.expect("two limits").remaining, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_leaves_its_place_in_the_client_to_others() {
    let layer = OutgoingLimitLayer::new(Limiter::in_memory(), policy("1/h"));
    let client = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let client = ConcurrencyLimit::new(client, 1);
    let mut limited = layer.layer(client.clone());
    let request = || {
        Request::builder()
            .uri("/no-host")
            .body(())
            .expect("a request")
    };

    let failed = limited
        .ready()
        .await
        .expect("infallible")
        .call(request())
        .await;

    assert_eq!(failed.unwrap_err(), OutgoingError::NoKey(KeyError::Missing));
    let other = tokio::time::timeout(Duration::from_secs(1), client.oneshot(request())).await;
    assert!(other.is_ok(), "the place is free");
    drop(limited);
}
