//! The limited service.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use actix_web::{
    Error, HttpMessage as _,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse},
};

use crate::{
    body::ResponseBody, check::check, count_body::count_body, framework::Config,
    worker_sharing::SharedLimiter,
};

/// A service whose requests are limited, made by [`RateLimit`](crate::RateLimit).
#[derive(Debug)]
pub struct RateLimitService<S> {
    inner: Rc<S>,
    config: Arc<Config>,
    /// Keeps the limiter shared while the server runs, which drops its middleware after the start.
    _shared_limiter: Option<Arc<SharedLimiter>>,
}

impl<S> RateLimitService<S> {
    pub(crate) fn new(
        inner: S,
        config: Arc<Config>,
        shared_limiter: Option<Arc<SharedLimiter>>,
    ) -> RateLimitService<S> {
        RateLimitService {
            inner: Rc::new(inner),
            config,
            _shared_limiter: shared_limiter,
        }
    }
}

impl<S, B> Service<ServiceRequest> for RateLimitService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<ResponseBody<B>>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&self, mut request: ServiceRequest) -> Self::Future {
        let inner = Rc::clone(&self.inner);
        let config = self.config.current();
        let payload = request.take_payload();
        let payload = count_body(&config, request.request(), payload);
        request.set_payload(payload);
        Box::pin(async move {
            let limiter = config.limiter.clone();
            let admission = match check(config, &limiter, request.request()).await {
                Ok(admission) => admission,
                Err(response) => return Ok(request.into_response(response).map_into_right_body()),
            };
            let mut response = match inner.call(request).await {
                Ok(response) => response,
                Err(error) => {
                    admission.fail(&error);
                    return Err(error);
                }
            };
            let guard = admission.settle(response.response_mut());
            let response = response.map_body(|_, body| ResponseBody::new(body, guard));
            Ok(response.map_into_left_body())
        })
    }
}
