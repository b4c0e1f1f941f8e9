//! The body of a limited response.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use actix_web::{
    body::{BodySize, MessageBody},
    web::Bytes,
};
use pin_project_lite::pin_project;
use ratelimit_http::middleware::BodyGuard;

pin_project! {
    /// The body of a limited response.
    ///
    /// - It holds the request's slot until it ends, fails or is dropped.
    /// - If the policy settles by response bytes, it counts them and settles at its end.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        body: B,
        guard: Option<Box<BodyGuard>>,
    }
}

impl<B: MessageBody> ResponseBody<B> {
    pub(crate) fn new(body: B, guard: Option<Box<BodyGuard>>) -> ResponseBody<B> {
        let is_empty = matches!(body.size(), BodySize::None | BodySize::Sized(0));
        if let Some(guard) = &guard
            && is_empty
        {
            guard.mark_complete();
        }
        ResponseBody { body, guard }
    }
}

impl<B: MessageBody> MessageBody for ResponseBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, B::Error>>> {
        let this = self.project();
        let part = ready!(this.body.poll_next(cx));
        match (&part, this.guard.as_mut()) {
            (_, None) => {}
            (Some(Ok(bytes)), Some(guard)) => guard.count_bytes(bytes.len()),
            (Some(Err(_)), Some(_)) => *this.guard = None,
            (None, Some(_)) => {
                if let Some(guard) = this.guard.take() {
                    guard.end();
                }
            }
        }
        Poll::Ready(part)
    }

    fn try_into_bytes(self) -> Result<Bytes, ResponseBody<B>> {
        if self.guard.is_some() {
            return Err(self);
        }
        let guard = None;
        self.body
            .try_into_bytes()
            .map_err(|body| ResponseBody { body, guard })
    }
}
