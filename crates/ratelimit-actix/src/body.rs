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
use ratelimit_core::adapter::Held;

pin_project! {
    /// The body of a limited response.
    ///
    /// It holds what the request was charged: a slot is given back when the body has ended, fails or is
    /// dropped, and a cost that is known only now is settled.
    #[derive(Debug)]
    pub struct LimitedBody<B> {
        #[pin]
        body: B,
        held: Option<Box<Held>>,
    }
}

impl<B: MessageBody> LimitedBody<B> {
    pub(crate) fn new(body: B, held: Option<Box<Held>>) -> LimitedBody<B> {
        let is_empty = matches!(body.size(), BodySize::None | BodySize::Sized(0));
        if let Some(held) = &held
            && is_empty
        {
            held.seen_end();
        }
        LimitedBody { body, held }
    }
}

impl<B: MessageBody> MessageBody for LimitedBody<B> {
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
        match (&part, this.held.as_mut()) {
            (_, None) => {}
            (Some(Ok(bytes)), Some(held)) => held.sent(bytes.len()),
            (Some(Err(_)), Some(_)) => *this.held = None,
            (None, Some(_)) => {
                if let Some(held) = this.held.take() {
                    held.end();
                }
            }
        }
        Poll::Ready(part)
    }

    fn try_into_bytes(self) -> Result<Bytes, LimitedBody<B>> {
        if self.held.is_some() {
            return Err(self);
        }
        let held = None;
        self.body
            .try_into_bytes()
            .map_err(|body| LimitedBody { body, held })
    }
}
