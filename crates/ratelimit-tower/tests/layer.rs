//! The layer around a service, without a network.

mod common;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use common::{
    Answer, Distant, Down, from, get, header, hello, layer, limiter, number, policy, send, send_to,
    start,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use ratelimit_core::{Decision, FailureMode, Limiter, MemoryStore, Policy, TokenBucket};
use ratelimit_http::response::HeaderStyle;
use ratelimit_tower::{DecisionSharing, RateLimitLayer, Rejection, RejectionReason};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

#[tokio::test]
async fn headers_count_down_until_the_request_is_denied() {
    let layer = layer(&start(), "fixed_window 2/min");

    let first = send(&layer, get()).await;
    let second = send(&layer, get()).await;
    let third = send(&layer, get()).await;

    for (response, remaining) in [(&first, 1), (&second, 0), (&third, 0)] {
        assert_eq!(number(response, "x-ratelimit-limit"), Some(2));
        assert_eq!(number(response, "x-ratelimit-remaining"), Some(remaining));
        assert_eq!(number(response, "x-ratelimit-reset"), Some(1_020));
    }
    assert_eq!(
        (first.status(), first.body().as_ref()),
        (StatusCode::OK, &b"hello"[..])
    );
    assert_eq!(header(&first, "retry-after"), None);
    assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&third, "retry-after"), Some("20"));
    assert_eq!(header(&third, "cache-control"), Some("no-store"));
    assert_eq!(
        header(&third, "content-type"),
        Some("application/problem+json")
    );
}

#[tokio::test]
async fn ten_per_second_allows_ten_in_each_second() {
    let clock = start();
    let limiter = limiter(&clock);
    let layer = RateLimitLayer::new(
        limiter,
        Policy::new("api", TokenBucket::per_second(10)).unwrap(),
    );

    for _ in 0..3 {
        for _ in 0..10 {
            assert_eq!(send(&layer, get()).await.status(), StatusCode::OK);
        }
        assert_eq!(
            send(&layer, get()).await.status(),
            StatusCode::TOO_MANY_REQUESTS
        );
        clock.advance(Duration::from_secs(1));
    }
}

#[tokio::test]
async fn retry_after_is_rounded_up_to_a_second() {
    let clock = start();
    let layer = layer(&clock, "1/s");
    send(&layer, get()).await;
    clock.advance(Duration::from_millis(700));

    let denied = send(&layer, get()).await;

    assert_eq!(header(&denied, "retry-after"), Some("1"));
}

#[tokio::test]
async fn a_cost_that_can_never_pass_has_no_retry_after() {
    let layer = layer(&start(), "5/min").cost(|_| 6);

    let denied = send(&layer, get()).await;

    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&denied, "retry-after"), None);
    assert_eq!(number(&denied, "x-ratelimit-remaining"), Some(5));
}

#[tokio::test]
async fn the_cost_comes_from_the_request() {
    let layer = layer(&start(), "5/min").cost(|request| match request.method {
        Method::POST => 3,
        _ => 1,
    });
    let post = || from("203.0.113.7").method(Method::POST).body(()).unwrap();

    assert_eq!(
        number(&send(&layer, post()).await, "x-ratelimit-remaining"),
        Some(2)
    );
    assert_eq!(
        send(&layer, post()).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(
        number(&send(&layer, get()).await, "x-ratelimit-remaining"),
        Some(1)
    );
}

#[tokio::test]
async fn services_and_clones_of_one_layer_share_its_budgets() {
    let layer = layer(&start(), "1/min").headers(HeaderStyle::None);

    let one = layer.layer(service_fn(hello)).oneshot(get()).await.unwrap();
    let other = layer
        .clone()
        .layer(service_fn(hello))
        .oneshot(get())
        .await
        .unwrap();

    assert_eq!((one.status(), one.headers().len()), (StatusCode::OK, 0));
    assert_eq!(other.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn head_gets_the_headers_and_no_body() {
    let layer = layer(&start(), "1/min");
    let denied = {
        send(&layer, get()).await;
        send(&layer, get()).await
    };

    let head = send(&layer, from("203.0.113.7").method("HEAD").body(()).unwrap()).await;

    assert_eq!(head.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(head.body().is_empty());
    assert_eq!(header(&head, "retry-after"), header(&denied, "retry-after"));
    assert_eq!(
        number(&head, "content-length"),
        Some(denied.body().len() as u64)
    );
}

#[tokio::test]
async fn preflight_requests_pass_uncounted_unless_counted_on_purpose() {
    let preflight = || {
        let request = from("203.0.113.7")
            .method(Method::OPTIONS)
            .header("origin", "https://a.example");
        request
            .header("access-control-request-method", "PUT")
            .body(())
            .unwrap()
    };
    let options = || {
        from("203.0.113.7")
            .method(Method::OPTIONS)
            .body(())
            .unwrap()
    };
    let layer = layer(&start(), "1/min");
    let counting = layer.clone().count_preflight();

    assert_eq!(
        header(&send(&layer, preflight()).await, "x-ratelimit-limit"),
        None
    );
    assert_eq!(send(&layer, options()).await.status(), StatusCode::OK);
    assert_eq!(send(&layer, preflight()).await.status(), StatusCode::OK);
    assert_eq!(
        send(&layer, options()).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(
        send(&counting, preflight()).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn exposed_headers_are_listed_once() {
    let layer = layer(&start(), "1/min").expose_headers();
    let nested = layer.clone().layer(layer.layer(service_fn(hello)));

    let response = nested.oneshot(get()).await.unwrap();

    let expected = "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset";
    assert_eq!(
        header(&response, "access-control-expose-headers"),
        Some(expected)
    );
}

#[tokio::test]
async fn a_grpc_request_is_rejected_with_a_grpc_status() {
    let layer = layer(&start(), "1/min");
    let call = |content_type: &str| {
        from("203.0.113.7")
            .header("content-type", content_type)
            .body(())
            .unwrap()
    };
    send(&layer, call("application/grpc")).await;

    let denied = send(&layer, call("application/grpc+proto")).await;
    let web = send(&layer, call("application/grpc-web-text")).await;
    let other = send(&layer, call("application/grpcish")).await;
    let never = send(&layer.clone().cost(|_| 9), call("application/grpc")).await;

    assert_eq!((denied.status(), denied.body().len()), (StatusCode::OK, 0));
    assert_eq!(header(&denied, "content-type"), Some("application/grpc"));
    assert_eq!(header(&denied, "grpc-status"), Some("8"));
    assert_eq!(header(&denied, "grpc-message"), Some("Rate limit exceeded"));
    assert_eq!(header(&denied, "grpc-retry-pushback-ms"), Some("60000"));
    assert_eq!(
        header(&web, "content-type"),
        Some("application/grpc-web-text")
    );
    assert_eq!(other.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&never, "grpc-retry-pushback-ms"), Some("-1"));
}

#[tokio::test]
async fn nested_layers_report_the_stricter_limit_once() {
    let clock = start();
    let names = [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    for (inner, outer, told) in [("5/min", "9/min", 5), ("9/min", "5/min", 5)] {
        let inner = layer(&clock, inner).layer(service_fn(hello));
        let nested = layer(&clock, outer).layer(inner);

        let response = nested.oneshot(get()).await.unwrap();

        assert_eq!(number(&response, names[0]), Some(told));
        assert_eq!(number(&response, names[1]), Some(told - 1));
        assert!(header(&response, names[2]).is_some());
    }
}

#[tokio::test]
async fn the_headers_of_an_inner_denial_stay() {
    let clock = start();
    let inner = layer(&clock, "5/h").cost(|_| 3).layer(service_fn(hello));
    let outer = layer(&clock, "2/min")
        .share_decision(DecisionSharing::RequestAndResponse)
        .layer(inner);
    outer.clone().oneshot(get()).await.unwrap();

    let denied = outer.oneshot(get()).await.unwrap();

    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(number(&denied, "x-ratelimit-limit"), Some(5));
    assert_eq!(number(&denied, "x-ratelimit-remaining"), Some(2));
}

#[tokio::test]
async fn stricter_headers_of_the_handler_stay() {
    let layer = layer(&start(), "5/min");
    let says = |remaining: &'static str| {
        service_fn(move |_: Request<()>| async move {
            let response = Response::builder()
                .header("x-ratelimit-limit", "7")
                .header("x-ratelimit-remaining", remaining)
                .header("x-ratelimit-reset", "4000000000");
            Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap())
        })
    };

    let strict = send_to(&layer, says("1"), get()).await;
    let lax = send_to(&layer, says("6"), get()).await;
    let garbage = send_to(&layer, says("many"), get()).await;

    assert_eq!(number(&strict, "x-ratelimit-limit"), Some(7));
    assert_eq!(number(&lax, "x-ratelimit-limit"), Some(5));
    assert_eq!(number(&garbage, "x-ratelimit-limit"), Some(5));
}

#[tokio::test]
async fn a_closure_makes_the_answer_and_the_layer_completes_it() {
    let teapot = |rejection: &Rejection<'_>| {
        assert!(matches!(rejection.cause, RejectionReason::Denied(_)));
        let response = Response::builder().status(StatusCode::IM_A_TEAPOT);
        response
            .header("retry-after", "1")
            .body(Bytes::from_static(b"short"))
            .unwrap()
    };
    let layer = layer(&start(), "1/min").on_denied(teapot);
    send(&layer, get()).await;

    let denied = send(&layer, get()).await;

    assert_eq!(
        (denied.status(), denied.body().as_ref()),
        (StatusCode::IM_A_TEAPOT, &b"short"[..])
    );
    assert_eq!(header(&denied, "retry-after"), Some("60"));
    assert_eq!(number(&denied, "x-ratelimit-remaining"), Some(0));
}

#[tokio::test]
async fn a_retry_after_of_a_closure_stays_if_it_is_longer_or_a_date() {
    let date = "Wed, 18 Nov 2026 07:28:00 GMT";
    for (theirs, sent) in [("120", "120"), ("+5", "60"), ("soon", "soon"), (date, date)] {
        let closure = move |_: &Rejection<'_>| {
            let response = Response::builder().header("retry-after", theirs);
            response.body(Bytes::new()).unwrap()
        };
        let layer = layer(&start(), "1/min").on_denied(closure);
        send(&layer, get()).await;

        let denied = send(&layer, get()).await;

        assert_eq!(header(&denied, "retry-after"), Some(sent));
    }
}

#[tokio::test]
async fn a_store_that_is_down_is_answered_by_the_failure_mode() {
    let with = |mode| {
        let limiter = Limiter::new(Down).failure_mode(mode);
        RateLimitLayer::new(limiter, policy("1/h"))
    };
    let (local, open, closed) = (
        with(FailureMode::Local),
        with(FailureMode::Open),
        with(FailureMode::Closed),
    );

    for layer in [&local, &open, &open, &open] {
        let allowed = send(layer, get()).await;
        assert_eq!(
            (allowed.status(), allowed.headers().len()),
            (StatusCode::OK, 0)
        );
    }
    let local = send(&local, get()).await;
    let closed = send(&closed, get()).await;

    assert_eq!(local.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(number(&local, "retry-after") > Some(3_590));
    assert_eq!(header(&local, "x-ratelimit-limit"), None);
    assert_eq!(closed.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(header(&closed, "retry-after"), Some("1"));
    assert_eq!(header(&closed, "x-ratelimit-limit"), None);
}

#[tokio::test]
async fn the_handler_and_outer_layers_see_the_decision_when_it_is_shared() {
    let layer = layer(&start(), "5/min").share_decision(DecisionSharing::RequestAndResponse);
    let echo = service_fn(async |request: Request<()>| {
        let decision: &Decision = request.extensions().get().expect("shared");
        Ok::<Answer, Infallible>(Response::new(Full::from(decision.remaining.to_string())))
    });

    let response = send_to(&layer, echo, get()).await;

    assert_eq!(response.body().as_ref(), b"4");
    assert_eq!(
        response.extensions().get::<Decision>().map(|d| d.remaining),
        Some(4)
    );
}

/// A service that must be ready before it is called, and counts its calls.
#[derive(Default)]
struct Strict {
    ready: bool,
    calls: Arc<AtomicU32>,
}

impl Clone for Strict {
    fn clone(&self) -> Strict {
        Strict {
            ready: false,
            calls: Arc::clone(&self.calls),
        }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Answer;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.ready, "called before it was ready");
        self.ready = false;
        self.calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Response::new(Full::default())))
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_ready_service_is_called_and_none_when_denied() {
    let clock = start();
    let near = || limiter(&clock);
    let far = || Limiter::new(Distant(MemoryStore::new().clock(clock.clone())));
    // The leaky bucket delays its second request.
    for (limiter, limits) in [
        (near(), "2/min"),
        (far(), "2/min"),
        (near(), "leaky_bucket 2/min"),
        (far(), "leaky_bucket 2/min"),
    ] {
        let strict = Strict::default();
        let calls = Arc::clone(&strict.calls);
        let mut service = RateLimitLayer::new(limiter, policy(limits)).layer(strict);
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let response = service.ready().await.unwrap().call(get()).await.unwrap();
            statuses.push(response.status().as_u16());
        }

        assert_eq!(statuses, [200, 200, 429], "{limits}");
        assert_eq!(calls.load(Ordering::Relaxed), 2, "{limits}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shaping_limit_spreads_requests_in_time() {
    let layer = layer(&start(), "leaky_bucket 2/s queue 3");
    let begin = tokio::time::Instant::now();

    let requests = (0..3).map(|_| send(&layer, get()));
    let waits = futures_util::future::join_all(requests.map(|request| async {
        request.await;
        begin.elapsed().as_millis()
    }));

    assert_eq!(waits.await, [0, 500, 1_000]);
}

#[tokio::test]
async fn a_dropped_request_still_costs() {
    let layer = layer(&start(), "2/min");

    drop(layer.layer(service_fn(hello)).call(get()));

    assert_eq!(
        number(&send(&layer, get()).await, "x-ratelimit-remaining"),
        Some(0)
    );
}
