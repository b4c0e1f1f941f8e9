//! Responses to requests that are not served.

use std::{
    ops::Deref,
    pin::pin,
    sync::Once,
    task::{Context, Poll, Waker},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http_body::Body as _;
use ratelimit_http::defaults_type;
use ratelimit_tower::{ClientKey, HttpFramework, KeyExtractor};

/// A request that is not served, and the reason: the argument of `on_denied` and `on_error`.
///
/// Their functions return anything that converts into a response. It has to be complete: a body that
/// waits for data is replaced by the usual response, and one warning is logged.
///
/// ```
/// use axum::{Json, http::StatusCode};
/// use ratelimit_axum::{RateLimitLayer, Rejection};
///
/// fn json_429(rejection: &Rejection<'_>) -> (StatusCode, Json<String>) {
///     (StatusCode::TOO_MANY_REQUESTS, Json(rejection.policy.name().to_owned()))
/// }
///
/// let layer = RateLimitLayer::per_client("10/min")?.on_denied(json_429);
/// # Ok::<(), ratelimit_axum::InvalidPolicy>(())
/// ```
///
/// A return type `impl IntoResponse` needs `+ use<>` in edition 2024: the response must not have the lifetimes of the
/// rejection. `on_denied` of the attribute takes functions with and without it.
///
/// ```
/// use axum::{http::StatusCode, response::IntoResponse};
/// use ratelimit_axum::{RateLimitLayer, Rejection, rate_limit};
///
/// fn denied(rejection: &Rejection<'_>) -> impl IntoResponse + use<> {
///     (StatusCode::TOO_MANY_REQUESTS, rejection.policy.name().to_owned())
/// }
///
/// fn in_an_attribute(rejection: &Rejection<'_>) -> impl IntoResponse {
///     denied(rejection)
/// }
///
/// let layer = RateLimitLayer::per_client("10/min")?.on_denied(denied);
///
/// #[rate_limit("10/min", on_denied = in_an_attribute)]
/// async fn hello() -> &'static str {
///     "hello"
/// }
/// # Ok::<(), ratelimit_axum::InvalidPolicy>(())
/// ```
#[derive(Debug)]
#[doc(alias("429", "Too Many Requests", "Retry-After"))]
pub struct Rejection<'a>(&'a ratelimit_tower::Rejection<'a>);

impl Rejection<'_> {
    /// The usual response: `application/problem+json`, or a trailers-only response for a gRPC request.
    pub fn response(&self) -> Response {
        self.0.response().map(Body::from)
    }
}

impl<'a> Deref for Rejection<'a> {
    type Target = ratelimit_tower::Rejection<'a>;

    fn deref(&self) -> &ratelimit_tower::Rejection<'a> {
        self.0
    }
}

/// The response that a function for `on_denied` or `on_error` makes.
pub(crate) fn respond<R: IntoResponse>(
    make: impl Fn(&Rejection<'_>) -> R,
    rejection: &ratelimit_tower::Rejection<'_>,
) -> http::Response<Bytes> {
    let response = make(&Rejection(rejection)).into_response();
    let (head, body) = response.into_parts();
    let Some(bytes) = complete_body(body) else {
        static WARNING: Once = Once::new();
        WARNING.call_once(|| {
            tracing::warn!(
                policy = rejection.policy.name(),
                "the response of on_denied or on_error is not complete: the usual one is sent"
            );
        });
        return rejection.response();
    };
    http::Response::from_parts(head, bytes)
}

/// The bytes of a body, or `None` if it fails or waits for data.
fn complete_body(body: Body) -> Option<Bytes> {
    let mut body = pin!(body);
    let mut cx = Context::from_waker(Waker::noop());
    let mut all = Bytes::new();
    loop {
        let Poll::Ready(frame) = body.as_mut().poll_frame(&mut cx) else {
            return None;
        };
        let Some(frame) = frame else {
            return Some(all);
        };
        let Ok(part) = frame.ok()?.into_data() else {
            continue;
        };
        all = if all.is_empty() {
            part
        } else {
            [all, part].concat().into()
        };
    }
}

defaults_type! {
    /// ratelimit-tower has the same defaults: set them with one of the two crates.
    ///
    /// ```
    /// use axum::http::StatusCode;
    /// use ratelimit_axum::{ClientKey, Defaults, HeaderStyle, TrustedProxies, set_global_defaults};
    ///
    /// let proxies = TrustedProxies::parse(["10.0.0.0/8"])?;
    /// let defaults = Defaults::new()
    ///     .client_key(ClientKey::behind(proxies))
    ///     .headers(HeaderStyle::Ietf)
    ///     .on_denied(|_| (StatusCode::TOO_MANY_REQUESTS, "slow down"));
    /// set_global_defaults(defaults)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Defaults<HttpFramework> for ClientKey: KeyExtractor, Rejection -> IntoResponse as respond
}
