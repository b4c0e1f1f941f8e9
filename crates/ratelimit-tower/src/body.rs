//! The body of a response: the inner service's, or ours.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a limited response.
    ///
    /// Where the inner service's body can be made from [`Bytes`], as axum's can,
    /// [`into_inner`](Self::into_inner) gives that type back.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    #[derive(Debug)]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Ours { bytes: Bytes },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn inner(body: B) -> ResponseBody<B> {
        ResponseBody {
            kind: Kind::Inner { body },
        }
    }

    pub(crate) const fn ours(bytes: Bytes) -> ResponseBody<B> {
        ResponseBody {
            kind: Kind::Ours { bytes },
        }
    }

    /// The body in the inner service's own type.
    pub fn into_inner(self) -> B
    where
        B: From<Bytes>,
    {
        match self.kind {
            Kind::Inner { body } => body,
            Kind::Ours { bytes } => bytes.into(),
        }
    }
}

impl<B> From<Bytes> for ResponseBody<B> {
    fn from(bytes: Bytes) -> ResponseBody<B> {
        ResponseBody::ours(bytes)
    }
}

impl<B> Default for ResponseBody<B> {
    fn default() -> ResponseBody<B> {
        ResponseBody::ours(Bytes::new())
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Inner { body } => body.poll_frame(cx),
            KindProj::Ours { bytes } if bytes.is_empty() => Poll::Ready(None),
            KindProj::Ours { bytes } => Poll::Ready(Some(Ok(Frame::data(mem::take(bytes))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Ours { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Ours { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
