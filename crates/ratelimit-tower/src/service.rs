//! The limited service.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use ratelimit_core::adapter::Start;
use tower_service::Service;

use crate::{
    body::ResponseBody,
    framework::Settings,
    future::{Parked, ResponseFuture},
};

/// A service whose requests are limited, made by [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> RateLimit<S> {
    pub(crate) const fn new(inner: S, settings: Arc<Settings>) -> RateLimit<S> {
        RateLimit { inner, settings }
    }

    /// The service inside.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        let refreshed = self.settings.refreshed();
        let settings = refreshed.as_ref().unwrap_or(&self.settings);
        let (mut parts, body) = request.into_parts();
        settings.own.prepare(&mut parts);
        let ask = match settings.start(&parts) {
            Start::Pass => {
                let response = self.inner.call(Request::from_parts(parts, body));
                return ResponseFuture::passing(response, settings);
            }
            Start::Refuse(answer) => return ResponseFuture::refused(answer, settings),
            Start::Ask(ask) => ask,
        };
        let mut asking = settings.ask(&settings.limiter, ask);
        let Some(asked) = asking.take_ready() else {
            // The check comes before the call, so the future takes the service that
            // `poll_ready` made ready, and leaves a clone in its place.
            let clone = self.inner.clone();
            let ready = mem::replace(&mut self.inner, clone);
            let held = Parked::new(ready, Request::from_parts(parts, body));
            return ResponseFuture::asking(asking, held, settings);
        };
        let (delay, passage) = match settings.judge(&parts, asked) {
            Ok(passed) => passed,
            Err(answer) => return ResponseFuture::refused(answer, settings),
        };
        let mut request = Request::from_parts(parts, body);
        settings
            .own
            .share_inwards(&passage, request.extensions_mut());
        if !delay.is_zero() {
            let held = Parked::new(self.inner.clone(), request);
            return ResponseFuture::waiting(delay, held, passage, settings);
        }
        // Nothing to wait for: the ready service is called where it stands, and no clone is made.
        ResponseFuture::calling(self.inner.call(request), passage, settings)
    }
}
