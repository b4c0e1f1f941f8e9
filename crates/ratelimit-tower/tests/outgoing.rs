//! The layer in front of a client.

mod common;

use std::{convert::Infallible, time::Duration};

use common::{Down, limiter, policy, start};
use http::{Request, Response};
use ratelimit_core::{
    Clock, Decision, FailureMode, Hit, Keys, Limiter, MemoryStore, Policy, Store, StoreFuture,
    Timestamp,
};
use ratelimit_tower::{NoKey, OutgoingError, OutgoingLimitLayer};
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _, service_fn};

async fn send(layer: &OutgoingLimitLayer, uri: &str) -> Result<(), OutgoingError<Infallible>> {
    let client = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let request = Request::builder().uri(uri).body(()).expect("a request");
    layer.layer(client).oneshot(request).await.map(drop)
}

#[tokio::test]
async fn a_spent_budget_is_an_error_unless_waiting_is_allowed() {
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
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision> {
        self.clock
            .set(Timestamp::from_secs(1_000) + self.begin.elapsed());
        self.store.hit(hit)
    }

    fn reset(&self, policy: &Policy, key: &Keys) -> StoreFuture<()> {
        self.store.reset(policy, key)
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_waits_within_its_bound_and_no_longer() {
    let begin = Instant::now();
    let limiter = Limiter::new(OnTokiosClock::start());
    let layer = OutgoingLimitLayer::new(limiter, policy("1/s")).wait(Duration::from_millis(1_500));

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
    let layer = OutgoingLimitLayer::new(limiter, policy("leaky_bucket 2/s")).wait(Duration::MAX);

    for _ in 0..5 {
        assert!(send(&layer, "http://a.example/").await.is_ok());
    }

    assert_eq!(begin.elapsed().as_millis(), 2_000);
}

#[tokio::test]
async fn no_key_and_no_store_are_errors_of_their_own() {
    let closed = Limiter::new(Down).on_failure(FailureMode::Closed);
    let closed = OutgoingLimitLayer::new(closed, policy("1/s"));

    assert_eq!(
        send(&closed, "http://a.example/").await,
        Err(OutgoingError::Unavailable)
    );
    assert_eq!(
        send(&closed, "/relative").await,
        Err(OutgoingError::NoKey(NoKey::Missing))
    );
}
