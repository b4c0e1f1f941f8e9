//! The code that `#[rate_limit(...)]` expands to: the check of a handler and its arguments.

use std::{convert::Infallible, future::Future, marker::PhantomData};

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Request},
    response::{IntoResponse, Response},
};
use http::{StatusCode, request::Parts};
use ratelimit_core::Limiter;
use ratelimit_http::{handler, registry::Registry};
use ratelimit_tower::{Admission, HttpFramework};

use crate::layer::RateLimitLayer;

/// The limit of one handler.
pub type HandlerLimit = handler::HandlerLimit<HttpFramework>;

/// The key by which a handler's requests are counted.
pub type HandlerKey = handler::HandlerKey<HttpFramework>;

/// The marker type of one handler, which leads from the type of its argument to its limit.
pub trait Marker: Send + Sync + 'static {
    /// The handler's limit.
    fn limit() -> &'static HandlerLimit;
}

/// All arguments of a limited handler, extracted after its check.
///
/// They are extracted inside this extractor, so that the response of an extractor that fails reports the
/// remaining budget as well.
#[derive(Debug)]
pub struct Limited<M, A> {
    admission: Admission,
    arguments: A,
    _marker: PhantomData<fn() -> M>,
}

/// `Via` is axum's way to extract the arguments. Without the tuple around it the implementation would overlap
/// with axum's own.
impl<M, A, Via, S> FromRequest<S, (Via,)> for Limited<M, A>
where
    M: Marker,
    A: FromRequest<S, Via> + Send,
    S: Send + Sync,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Limited<M, A>, Response> {
        let (mut head, body) = request.into_parts();
        let admission = check(M::limit(), &mut head).await?;
        let request = Request::from_parts(head, body);
        match A::from_request(request, state).await {
            Ok(arguments) => Ok(Limited {
                admission,
                arguments,
                _marker: PhantomData,
            }),
            Err(rejection) => Err(finish(admission, rejection)),
        }
    }
}

impl<M, A> Limited<M, A> {
    /// Calls the handler, writes the header fields of its response, and settles the request's cost.
    pub async fn call<R>(self, handler: impl FnOnce(A) -> R) -> Response
    where
        R: Future<Output: IntoResponse>,
    {
        let response = handler(self.arguments).await;
        finish(self.admission, response)
    }
}

async fn check(limit: &HandlerLimit, request: &mut Parts) -> Result<Admission, Response> {
    let limiter = request.extensions.get::<Limiter>().cloned();
    let limiter = limiter.unwrap_or_else(handler::global_limiter);
    let registry = || request.extensions.get::<Registry>().cloned();
    let config = limit.config(&limiter, registry, RateLimitLayer::handler_config);
    let config = config.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
    let admission = Admission::check(config, &limiter, request).await;
    admission.map_err(|response| response.map(Body::from))
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
/// The compiler shows this name in its error if `#[debug_handler]` is above `#[rate_limit]`.
#[derive(Clone, Copy, Debug)]
pub struct DebugHandlerGoesBelowRateLimit;

impl<S: Sync> FromRequestParts<S> for DebugHandlerGoesBelowRateLimit {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(DebugHandlerGoesBelowRateLimit)
    }
}
