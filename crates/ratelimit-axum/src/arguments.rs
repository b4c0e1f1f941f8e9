//! The arguments of a limited handler, which are extracted after its check.

use std::{convert::Infallible, future::Future, marker::PhantomData};

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Request},
    response::{IntoResponse, Response},
};
use http::request::Parts;
use ratelimit_tower::Admission;

use crate::attribute::Marker;

/// All arguments of a limited handler, after its check.
///
/// They are extracted here and not beside the check, so that the answer of an extractor that fails
/// tells what is left as well.
#[derive(Debug)]
pub struct Limited<M, A> {
    passed: Admission,
    arguments: A,
    _marker: PhantomData<fn() -> M>,
}

/// `Via` is how axum extracts the arguments, alone it would overlap with axum's own implementation.
impl<M, A, Via, S> FromRequest<S, (Via,)> for Limited<M, A>
where
    M: Marker,
    A: FromRequest<S, Via> + Send,
    S: Send + Sync,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Limited<M, A>, Response> {
        let (mut head, body) = request.into_parts();
        let passed = M::limit().check(&mut head).await?;
        let request = Request::from_parts(head, body);
        match A::from_request(request, state).await {
            Ok(arguments) => Ok(Limited {
                passed,
                arguments,
                _marker: PhantomData,
            }),
            Err(rejection) => Err(finished(passed, rejection)),
        }
    }
}

impl<M, A> Limited<M, A> {
    /// Calls the handler, tells in its answer what is left, and settles by it.
    pub async fn call<R>(self, handler: impl FnOnce(A) -> R) -> Response
    where
        R: Future<Output: IntoResponse>,
    {
        let answer = handler(self.arguments).await;
        finished(self.passed, answer)
    }
}

fn finished(passed: Admission, answer: impl IntoResponse) -> Response {
    let response = passed.finish(answer.into_response());
    response.map(Body::from)
}

/// Stands for each argument before the last, which brings them all.
///
/// With it a limited handler takes as many arguments as were written, which is what
/// `#[debug_handler]` above `#[rate_limit]` looks at.
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
/// It takes one all the same, and the compiler says this name to who writes `#[debug_handler]`
/// above `#[rate_limit]`.
#[derive(Clone, Copy, Debug)]
pub struct DebugHandlerGoesBelowRateLimit;

impl<S: Sync> FromRequestParts<S> for DebugHandlerGoesBelowRateLimit {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(DebugHandlerGoesBelowRateLimit)
    }
}
