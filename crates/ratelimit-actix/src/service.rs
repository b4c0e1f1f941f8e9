//! The limited service.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse},
};

use crate::{body::LimitedBody, check::check, framework::Settings};

/// A service whose requests are limited, made by [`RateLimit`](crate::RateLimit).
#[derive(Debug)]
pub struct RateLimitService<S> {
    inner: Rc<S>,
    settings: Arc<Settings>,
}

impl<S> RateLimitService<S> {
    pub(crate) fn new(inner: S, settings: Arc<Settings>) -> RateLimitService<S> {
        let inner = Rc::new(inner);
        RateLimitService { inner, settings }
    }
}

impl<S, B> Service<ServiceRequest> for RateLimitService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<LimitedBody<B>>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let inner = Rc::clone(&self.inner);
        let settings = self.settings.current();
        Box::pin(async move {
            let limiter = settings.limiter.clone();
            let passed = match check(settings, &limiter, request.request()).await {
                Ok(passed) => passed,
                Err(answer) => return Ok(request.into_response(answer).map_into_right_body()),
            };
            let mut response = match inner.call(request).await {
                Ok(response) => response,
                Err(error) => {
                    passed.fail(&error);
                    return Err(error);
                }
            };
            let held = passed.finish(response.status(), response.headers_mut());
            let response = response.map_body(|_, body| LimitedBody::new(body, held));
            Ok(response.map_into_left_body())
        })
    }
}
