//! What a request holds until its response ends, without a server.

mod common;

use std::{
    convert::Infallible,
    future::{pending, ready},
    io,
    pin::Pin,
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use common::{Answer, get, header, layer, policy, send, start};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use ratelimit_core::{
    Key, KeySet, Limiter, MemoryStore, Policy,
    store::{Adjustment, Charged, Hit, Receipt, Settlement, Store, StoreFuture},
};
use ratelimit_http::policy::{HttpPolicy, SettleSource};
use ratelimit_tower::{RateLimitLayer, ResponseBody, SlotGuard};
use tokio::time::timeout;
use tower::{Layer as _, Service, ServiceExt as _, limit::ConcurrencyLimit, service_fn};

const ONE: &str = "concurrency 1 lease 1h";

async fn is_free(layer: &RateLimitLayer) -> bool {
    send(layer, get()).await.status() == 200
}

/// Answers with a body that nobody has read yet.
async fn open(layer: &RateLimitLayer) -> Response<ResponseBody<Full<Bytes>>> {
    let service = layer.layer(service_fn(common::hello));
    let Ok(response) = service.oneshot(get()).await;
    response
}

#[tokio::test]
async fn a_slot_is_released_after_the_last_byte() {
    let layer = layer(&start(), ONE);

    let mut response = open(&layer).await;
    assert_eq!(response.status(), 200);
    assert!(!is_free(&layer).await);
    assert_eq!(response.body().size_hint().exact(), Some(5));
    let frame = response.frame().await;

    assert!(frame.is_some_and(|frame| frame.is_ok()));
    assert!(
        is_free(&layer).await,
        "the body is at its end, and still there"
    );
    drop(response);
}

#[tokio::test]
async fn a_slot_is_given_back_with_the_body_that_is_dropped() {
    let layer = layer(&start(), ONE);

    let response = open(&layer).await;
    assert!(!is_free(&layer).await);
    drop(response);

    assert!(is_free(&layer).await);
}

#[tokio::test]
async fn a_slot_is_given_back_when_the_service_fails() {
    let layer = layer(&start(), ONE);
    let failing = service_fn(async |_: Request<()>| Err::<Answer, _>(io::Error::other("broken")));

    let failed = layer.layer(failing).oneshot(get()).await;

    assert!(failed.is_err());
    assert!(is_free(&layer).await);
}

#[tokio::test]
async fn a_slot_is_given_back_when_the_call_is_dropped() {
    let layer = layer(&start(), ONE);
    let endless = service_fn(async |_: Request<()>| pending::<Result<Answer, Infallible>>().await);

    let mut call = Box::pin(layer.layer(endless).oneshot(get()));
    assert!(is_pending(&mut call));
    assert!(!is_free(&layer).await);
    drop(call);

    assert!(is_free(&layer).await);
}

fn is_pending(call: &mut Pin<Box<impl Future>>) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    call.as_mut().poll(&mut cx).is_pending()
}

/// A client that resets its requests would else have them for nothing.
#[tokio::test]
async fn a_call_that_is_dropped_stays_charged() {
    let charged =
        HttpPolicy::from(policy("1/min")).with_charge_on("401".parse().expect("statuses"));
    let layer = RateLimitLayer::new(common::limiter(&start()), charged);
    let endless = service_fn(async |_: Request<()>| pending::<Result<Answer, Infallible>>().await);

    let mut call = Box::pin(layer.layer(endless).oneshot(get()));
    assert!(is_pending(&mut call));
    drop(call);

    assert_eq!(send(&layer, get()).await.status(), 429);
}

#[tokio::test]
async fn a_session_keeps_the_slots_of_all_layers_around_it() {
    let clock = start();
    let outer = layer(&clock, ONE);
    let inner = RateLimitLayer::new(
        common::limiter(&clock),
        Policy::parse("inner", ONE).expect("limits"),
    );
    let keeping = service_fn(async |request: Request<()>| {
        let slot = request.extensions().get::<SlotGuard>().cloned();
        let mut response = Response::new(Full::<Bytes>::default());
        response.extensions_mut().insert(slot.expect("a slot"));
        Ok::<_, Infallible>(response)
    });

    let service = outer.layer(inner.layer(keeping));
    let Ok(response) = service.oneshot(get()).await;
    let (head, body) = response.into_parts();
    drop(body);
    assert_eq!(
        (is_free(&outer).await, is_free(&inner).await),
        (false, false)
    );
    drop(head);

    assert_eq!((is_free(&outer).await, is_free(&inner).await), (true, true));
}

#[tokio::test]
async fn a_session_settles_its_request_at_the_last_cost_that_it_names() {
    let policy = policy("fixed_window 100/d; concurrency 200 lease 1h");
    let charged = HttpPolicy::from(policy.clone()).with_charge_on("2xx".parse().expect("statuses"));
    let limiter = common::limiter(&start());
    let layer = RateLimitLayer::new(limiter.clone(), charged).cost(|_| 40);
    let keeping = service_fn(async |request: Request<()>| {
        let slot = request.extensions().get::<SlotGuard>().cloned();
        let mut response = Response::new(Full::<Bytes>::default());
        response.extensions_mut().insert(slot.expect("a slot"));
        Ok::<_, Infallible>(response)
    });
    let client = Key::ip([203, 0, 113, 7].into());
    let left = async || {
        let verdict = limiter.peek(&policy, &client).await;
        verdict.decision().map(|decision| decision.remaining)
    };

    // Less than the estimate of 40, then more, then none.
    for (costs, expected) in [(&[50, 15][..], 85), (&[45], 40), (&[], 0)] {
        let Ok(response) = layer.layer(keeping).oneshot(get()).await;
        let slot = response.extensions().get::<SlotGuard>().cloned();
        let slot = slot.expect("a slot");
        for cost in costs {
            slot.settle(*cost);
        }
        drop((response, slot));
        assert_eq!(left().await, Some(expected), "{costs:?}");
    }
}

/// Answers with `status`, five bytes and the guard of the request.
fn answer_with_guard(request: &Request<()>, status: u16) -> Response<Full<Bytes>> {
    let slot = request.extensions().get::<SlotGuard>().cloned();
    let mut response = Response::new(Full::from("hello"));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response.extensions_mut().insert(slot.expect("a slot"));
    response
}

/// Sends a request of cost 40 under a policy of 100. The handler names the cost 15 while the body is sent. Returns the
/// rest of the budget.
async fn rest_after_settling(policy: HttpPolicy, status: u16) -> Option<u64> {
    let limiter = common::limiter(&start());
    let layer = RateLimitLayer::new(limiter.clone(), policy.clone()).cost(|_| 40);
    let service = layer.layer(service_fn(move |request| {
        ready(Ok::<_, Infallible>(answer_with_guard(&request, status)))
    }));
    let Ok(response) = service.oneshot(get()).await;
    let slot = response.extensions().get::<SlotGuard>().cloned();
    slot.expect("a slot").settle(15);
    let body = response.into_body().collect().await.expect("a body");
    assert_eq!(body.to_bytes(), "hello");
    let client = Key::ip([203, 0, 113, 7].into());
    let verdict = limiter.peek(policy.policy(), &client).await;
    verdict.decision().map(|decision| decision.remaining)
}

#[tokio::test]
async fn a_cost_that_the_handler_names_counts_in_place_of_the_bytes() {
    let policy = HttpPolicy::from(policy("sliding_window_log 100/d; concurrency 200 lease 1h"))
        .with_settle_source(SettleSource::ResponseBytes);

    assert_eq!(rest_after_settling(policy, 200).await, Some(85));
}

#[tokio::test]
async fn a_refund_by_the_status_is_final() {
    let policy = HttpPolicy::from(policy("sliding_window_log 100/d; concurrency 200 lease 1h"))
        .with_charge_on("2xx".parse().expect("statuses"));

    assert_eq!(rest_after_settling(policy.clone(), 200).await, Some(85));
    assert_eq!(rest_after_settling(policy, 500).await, Some(100));
}

/// A store that answers later, and settles later still.
#[derive(Clone, Debug)]
struct Distant(MemoryStore);

impl Store for Distant {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        let (store, policy, keys) = (
            self.0.clone(),
            hit.policy.clone(),
            KeySet::new(hit.key.clone()),
        );
        let (cost, slot) = (hit.cost, hit.slot);
        StoreFuture::pending(async move {
            tokio::task::yield_now().await;
            store
                .hit(Hit::for_keys(&policy, &keys).cost(cost).slot(slot))
                .await
        })
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        let (store, receipt) = (self.0.clone(), receipt.clone());
        StoreFuture::pending(async move {
            tokio::task::yield_now().await;
            store.settle(&receipt, change).await
        })
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        self.0.reset(policy, keys)
    }
}

#[tokio::test]
async fn settling_in_a_remote_store_does_not_delay_the_response() {
    let store = Distant(MemoryStore::new().clock(start()));
    let charged = HttpPolicy::from(policy("2/min; concurrency 1 lease 1h"));
    let charged = charged.with_charge_on("401".parse().expect("statuses"));
    let layer = RateLimitLayer::new(Limiter::new(store), charged);

    for _ in 0..4 {
        let answer = send(&layer, get()).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(header(&answer, "x-ratelimit-limit"), Some("1"));
        // The task that settles has its turns now, and no response waited for it.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }
}

/// A service that handles one request at a time, and reserves its place in `poll_ready`.
fn one_at_a_time() -> ConcurrencyLimit<
    impl Service<Request<()>, Response = Answer, Error = Infallible, Future: Send> + Clone,
> {
    ConcurrencyLimit::new(service_fn(common::hello), 1)
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_reaches_a_service_that_reserves_its_place() {
    let limiter = Limiter::in_memory();
    let layer = RateLimitLayer::new(limiter, policy("leaky_bucket 1/s queue 9"));
    // As a server serves one connection: the service stays while its request waits.
    let mut service = layer.layer(one_at_a_time());

    for _ in 0..3 {
        let ready = service.ready().await.expect("infallible");
        let response = timeout(Duration::from_secs(60), ready.call(get())).await;
        let response = response.expect("it is not stuck").expect("infallible");
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_leaves_its_place_to_others_meanwhile() {
    let layer = RateLimitLayer::new(Limiter::in_memory(), policy("leaky_bucket 1/h queue 9"));
    let inner = one_at_a_time();
    let mut service = layer.layer(inner.clone());
    let first = service.ready().await.expect("infallible").call(get());
    first.await.expect("infallible");

    let delayed = service.ready().await.expect("infallible").call(get());

    assert!(
        timeout(Duration::from_secs(1), inner.oneshot(get()))
            .await
            .is_ok()
    );
    drop(delayed);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_request_leaves_its_place_to_others() {
    let blocked = HttpPolicy::parse("api", "1/h").unwrap();
    let blocked = blocked.with_block_rule("path:/*".parse().unwrap());
    for policy in [HttpPolicy::parse("api", "1/h").unwrap(), blocked] {
        let layer = RateLimitLayer::new(Limiter::in_memory(), policy);
        let _: Response<Bytes> = send(&layer, get()).await;
        let inner = one_at_a_time();
        let mut service = layer.layer(inner.clone());

        let rejected = service.ready().await.expect("infallible").call(get()).await;

        assert!(rejected.expect("infallible").status().is_client_error());
        let other = timeout(Duration::from_secs(1), inner.oneshot(get())).await;
        assert!(other.is_ok(), "the place is free");
        drop(service);
    }
}
