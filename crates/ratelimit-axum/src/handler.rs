//! The code that `#[rate_limit(...)]` expands to: the check of a handler and its arguments.

use std::{convert::Infallible, future::Future, marker::PhantomData, sync::Arc};

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Request},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{StatusCode, request::Parts};
use ratelimit_core::Limiter;
use ratelimit_http::{handler, middleware::Config, registry::Registry};
use ratelimit_tower::{Admission, CountedBody, HttpFramework};

use crate::{
    layer::RateLimitLayer,
    rejection::{Rejection, respond},
};

/// The limit of one handler.
pub type HandlerLimit = handler::HandlerLimit<HttpFramework>;

/// The key by which a handler's requests are counted.
pub type HandlerKey = handler::HandlerKey<HttpFramework>;

/// A rejection as the function of `on_denied` in an expansion receives it.
pub type HandlerRejection<'a> = ratelimit_tower::Rejection<'a>;

/// The response that the function of `on_denied` in an expansion returns.
pub type HandlerResponse = http::Response<Bytes>;

/// Calls the function of `on_denied` in an attribute.
pub fn respond_to_rejection<R: IntoResponse>(
    make: impl Fn(&Rejection<'_>) -> R,
    rejection: &HandlerRejection<'_>,
) -> HandlerResponse {
    respond(make, rejection)
}

/// The response that a function of `on_denied` returns, as one type for all requests.
pub fn into_response(response: impl IntoResponse, _: &Rejection<'_>) -> Response {
    response.into_response()
}

/// Identifies a handler in the type of its argument, by [`handler_id`].
#[derive(Clone, Copy, Debug)]
pub struct HandlerId<const ID: u64>;

/// Leads from the type of a handler's argument to its limit.
///
/// The expansion implements it inside of the handler, so that it also works in an `impl`. `M` is a type of
/// the handler, because the trait and [`HandlerId`] belong to another crate.
pub trait LimitOf<M> {
    /// The handler's limit.
    fn limit() -> &'static HandlerLimit;
}

/// The number of a handler, by its path, its line and the number of the expansion: FNV-1a.
pub const fn handler_id(path: &str, line: u32, expansion: u32) -> u64 {
    let place = ((line as u64) << 32) | expansion as u64;
    let hash = fnv1a(0xcbf2_9ce4_8422_2325, &place.to_le_bytes());
    fnv1a(hash, path.as_bytes())
}

const fn fnv1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0100_0000_01b3);
        index += 1;
    }
    hash
}

/// All arguments of a limited handler, extracted after its check.
///
/// They are extracted inside this extractor, so that the response of an extractor that fails reports the
/// remaining budget as well.
#[derive(Debug)]
pub struct Limited<H, A> {
    admission: Admission,
    arguments: A,
    _handler: PhantomData<fn() -> H>,
}

/// `Via` is axum's way to extract the arguments. Without the tuple around it the implementation would overlap
/// with axum's own.
impl<H, M, A, Via, S> FromRequest<S, (Via, M)> for Limited<H, A>
where
    H: LimitOf<M>,
    A: FromRequest<S, Via> + Send,
    S: Send + Sync,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Limited<H, A>, Response> {
        let (mut head, body) = request.into_parts();
        let settings = settings(H::limit(), &head);
        let (config, limiter) = settings.map_err(IntoResponse::into_response)?;
        let body = CountedBody::wrap_if_needed(&config, &mut head, body, Body::new);
        let admission = Admission::check(config, &limiter, &mut head).await;
        let admission = admission.map_err(|response| response.map(Body::from))?;
        let request = Request::from_parts(head, body);
        match A::from_request(request, state).await {
            Ok(arguments) => Ok(Limited {
                admission,
                arguments,
                _handler: PhantomData,
            }),
            Err(rejection) => Err(finish(admission, rejection)),
        }
    }
}

impl<H, A> Limited<H, A> {
    /// Calls the handler, writes the header fields of its response, and settles the request's cost.
    pub async fn call<R>(self, handler: impl FnOnce(A) -> R) -> Response
    where
        R: Future<Output: IntoResponse>,
    {
        let response = handler(self.arguments).await;
        finish(self.admission, response)
    }
}

/// The settings of a handler's limit for a request, and its limiter.
fn settings(
    limit: &HandlerLimit,
    request: &Parts,
) -> Result<(Arc<Config<HttpFramework>>, Limiter), StatusCode> {
    let limiter = request.extensions.get::<Limiter>().cloned();
    let registry = || request.extensions.get::<Registry>().cloned();
    let settings = limit.config(limiter, registry, RateLimitLayer::handler_config);
    settings.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

fn finish(admission: Admission, response: impl IntoResponse) -> Response {
    let response = admission.finish(response.into_response());
    response.map(Body::from)
}

/// The type of each argument but the last, which brings them all.
///
/// It keeps the number of arguments, which `#[debug_handler]` above `#[rate_limit]` inspects.
#[derive(Clone, Copy, Debug)]
pub struct Placeholder;

impl<S: Sync> FromRequestParts<S> for Placeholder {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Placeholder, Infallible> {
        Ok(Placeholder)
    }
}

/// The arguments of a handler that has none.
///
/// The compiler shows this name in its error if `#[debug_handler]` is above `#[rate_limit]`:
///
/// ```compile_fail,E0061
/// use axum::debug_handler;
/// use ratelimit_axum::rate_limit;
///
/// #[debug_handler]
/// #[rate_limit("5/min")]
/// async fn index() -> &'static str {
///     "hello"
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DebugHandlerGoesBelowRateLimit;

impl<S: Sync> FromRequestParts<S> for DebugHandlerGoesBelowRateLimit {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(DebugHandlerGoesBelowRateLimit)
    }
}
