//! What a request costs in allocations; in a binary of its own, which is the allocator's reach.

mod common;

use std::{
    convert::Infallible,
    pin::pin,
    task::{Context, Poll, Waker},
};

use allocation_counter::measure;
use common::{get, layer, start};
use http::{HeaderValue, Request, Response};
use ratelimit_http::response::HeaderStyle;
use ratelimit_tower::RateLimitLayer;
use tower::{Layer as _, Service as _, service_fn};

/// How many allocations the third request of a client takes, which is answered with `status`.
///
/// The service's response has `headers_in_response` header fields of its own.
fn allocations(layer: &RateLimitLayer, status: u16, headers_in_response: usize) -> u64 {
    let mut service = layer.layer(service_fn(|request: Request<Response<()>>| {
        std::future::ready(Ok::<_, Infallible>(request.into_body()))
    }));
    let mut requests = [get(), get(), get()].map(|request| {
        let mut response = Response::new(());
        // Room for the names, which belongs to the map and not to the layer.
        response.headers_mut().reserve(8);
        for place in 0..headers_in_response {
            let name = http::HeaderName::try_from(format!("x-{place}")).expect("a name");
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static("v"));
        }
        Some(request.map(|()| response))
    });
    let mut exchange = |place: usize| {
        let request = requests[place].take().expect("sent once");
        let mut response = pin!(service.call(request));
        let mut cx = Context::from_waker(Waker::noop());
        match response.as_mut().poll(&mut cx) {
            Poll::Ready(Ok(response)) => response.status(),
            Poll::Pending => panic!("memory answers at once"),
        }
    };
    // The first request of a client makes its budget, the second what many responses share.
    exchange(0);
    exchange(1);
    let mut answered = None;
    let taken = measure(|| answered = Some(exchange(2))).count_total;
    assert_eq!(answered.map(|answered| answered.as_u16()), Some(status));
    taken
}

#[test]
fn a_request_that_passes_takes_no_allocation_beyond_its_header_values() {
    let layer = layer(&start(), "fixed_window 100/min");
    let allocations = |style| allocations(&layer.clone().headers(style), 200, 2);

    assert_eq!(allocations(HeaderStyle::None), 0);
    assert_eq!(allocations(HeaderStyle::XRateLimit), 0);
    assert_eq!(allocations(HeaderStyle::XRateLimitDelta), 0);
    assert_eq!(allocations(HeaderStyle::RateLimit), 0);
    assert_eq!(allocations(HeaderStyle::Ietf), 1);
}

#[test]
fn a_header_value_of_more_than_three_digits_is_an_allocation_unless_it_comes_again() {
    let layer = layer(&start(), "fixed_window 1000000/min");
    let allocations = |style| allocations(&layer.clone().headers(style), 200, 2);

    // The limit was made with the layer, and the reset with the response before.
    assert_eq!(allocations(HeaderStyle::XRateLimit), 1);
    assert_eq!(allocations(HeaderStyle::RateLimit), 1);
}

#[test]
fn several_limits_take_two_more() {
    let layer = layer(
        &start(),
        "fixed_window 100/min; 1000/h; sliding_window_counter 1000/h",
    );

    assert_eq!(
        allocations(&layer.clone().headers(HeaderStyle::None), 200, 0),
        2
    );
    assert_eq!(allocations(&layer, 200, 2), 2);
}

#[test]
fn a_denied_request_takes_the_allocations_of_its_answer() {
    let layer = layer(&start(), "fixed_window 1/min");
    let allocations = |style| allocations(&layer.clone().headers(style), 429, 0);

    // The body, and the two halves of the header map.
    assert_eq!(allocations(HeaderStyle::None), 3);
    assert_eq!(allocations(HeaderStyle::XRateLimit), 3);
    assert_eq!(allocations(HeaderStyle::Ietf), 4);
}
