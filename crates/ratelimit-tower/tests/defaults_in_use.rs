//! Defaults that come too late are an error. They are set once per process, so this file has one test.

use http::Response;
use ratelimit_core::{Limiter, Policy};
use ratelimit_http::{middleware::SetDefaultsError, response::HeaderStyle};
use ratelimit_tower::{Defaults, RateLimitLayer, set_global_defaults};
use tower::{Layer as _, service_fn};

#[test]
fn defaults_after_the_first_layer_are_an_error() {
    let policy = Policy::parse("api", "1/min").expect("a policy");
    let layer = RateLimitLayer::new(Limiter::in_memory(), policy);
    let _service = layer.layer(service_fn(async |_: http::Request<()>| {
        Ok::<_, std::io::Error>(Response::new("hello"))
    }));

    let late = set_global_defaults(Defaults::new().headers(HeaderStyle::Ietf));

    assert_eq!(late, Err(SetDefaultsError::InUse));
    let message = SetDefaultsError::InUse.to_string();
    assert!(message.contains("before the first layer"), "{message}");
}
