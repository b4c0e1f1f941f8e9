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
use ratelimit_core::HeaderStyle;
use ratelimit_tower::RateLimitLayer;
use tower::{Layer as _, Service as _, service_fn};

fn allocations(layer: &RateLimitLayer, headers_in_response: usize) -> u64 {
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
            Poll::Ready(Ok(response)) => assert_eq!(response.status(), 200),
            Poll::Pending => panic!("memory answers at once"),
        }
    };
    // The first request of a client makes its budget.
    exchange(0);
    exchange(1);
    measure(|| exchange(2)).count_total
}

#[test]
fn a_request_that_passes_takes_no_allocation_beyond_its_header_values() {
    let layer = layer(&start(), "100/min");
    let allocations = |style| allocations(&layer.clone().headers(style), 2);

    assert_eq!(allocations(HeaderStyle::None), 0);
    // The limit's own value was made with the layer.
    assert_eq!(allocations(HeaderStyle::XRateLimit), 2);
    assert_eq!(allocations(HeaderStyle::RateLimit), 2);
    assert_eq!(allocations(HeaderStyle::Ietf), 1);
}

#[test]
fn several_limits_take_no_more() {
    let layer = layer(
        &start(),
        "100/min; fixed_window 1000/h; sliding_window_counter 1000/h",
    );

    assert_eq!(allocations(&layer.headers(HeaderStyle::None), 0), 0);
}
