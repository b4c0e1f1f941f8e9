//! The body of a response to a limited client.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use ratelimit_core::Reservation;

pin_project! {
    /// The body of a response to an [`OutgoingLimit`](super::OutgoingLimit).
    ///
    /// Under a policy with a concurrency limit it holds the request's slot. The slot is released when
    /// the body has ended, fails or is dropped.
    #[derive(Debug)]
    pub struct OutgoingBody<B> {
        #[pin]
        inner: B,
        slot: Option<Box<Reservation>>,
    }
}

impl<B> OutgoingBody<B> {
    pub(super) const fn new(inner: B, slot: Option<Box<Reservation>>) -> OutgoingBody<B> {
        OutgoingBody { inner, slot }
    }

    /// Returns the inner client's own body and releases the slot.
    pub fn into_inner(self) -> B {
        self.inner
    }
}

impl<B: Body> Body for OutgoingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        let is_last = !matches!(frame, Some(Ok(_))) || this.inner.is_end_stream();
        if is_last {
            *this.slot = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
