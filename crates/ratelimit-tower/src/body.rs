//! The body of a response: the inner service's, or the layer's own.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use ratelimit_http::middleware::BodyGuard;

pin_project! {
    /// The body of a limited response.
    ///
    /// - It holds the request's slot until it ends, fails or is dropped.
    /// - If the policy settles by response bytes, it counts them and settles at its end.
    /// - If the inner service's body can be made from [`Bytes`], as axum's can,
    ///   [`into_inner`](Self::into_inner) returns that type.
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
        Inner { #[pin] body: B, guard: Option<Box<BodyGuard>> },
        Rejection { bytes: Bytes },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn inner(body: B, guard: Option<Box<BodyGuard>>) -> ResponseBody<B> {
        ResponseBody {
            kind: Kind::Inner { body, guard },
        }
    }

    /// The body of a response that the layer makes itself.
    pub(crate) const fn rejection(bytes: Bytes) -> ResponseBody<B> {
        ResponseBody {
            kind: Kind::Rejection { bytes },
        }
    }

    /// The body in the inner service's own type.
    ///
    /// # Errors
    ///
    /// Returns the body unchanged if it holds a slot or counts bytes.
    pub fn try_into_inner(self) -> Result<B, ResponseBody<B>>
    where
        B: From<Bytes>,
    {
        match self.kind {
            Kind::Inner { guard: Some(_), .. } => Err(self),
            _ => Ok(self.into_inner()),
        }
    }

    /// The body in the inner service's own type. It releases the slot at once.
    pub fn into_inner(self) -> B
    where
        B: From<Bytes>,
    {
        match self.kind {
            Kind::Inner { body, .. } => body,
            Kind::Rejection { bytes } => bytes.into(),
        }
    }
}

#[cfg(feature = "axum")]
impl<B> From<ResponseBody<B>> for axum::body::Body
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    /// A body without a guard is not boxed again.
    #[inline]
    fn from(body: ResponseBody<B>) -> axum::body::Body {
        match body.kind {
            Kind::Inner { body, guard: None } => axum::body::Body::new(body),
            Kind::Rejection { bytes } => bytes.into(),
            kind @ Kind::Inner { .. } => axum::body::Body::new(ResponseBody { kind }),
        }
    }
}

impl<B> From<Bytes> for ResponseBody<B> {
    fn from(bytes: Bytes) -> ResponseBody<B> {
        ResponseBody::rejection(bytes)
    }
}

impl<B> Default for ResponseBody<B> {
    fn default() -> ResponseBody<B> {
        ResponseBody::rejection(Bytes::new())
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
            KindProj::Inner { body, guard: None } => body.poll_frame(cx),
            KindProj::Inner { mut body, guard } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                match &frame {
                    Some(Ok(part)) => {
                        count(guard, part);
                        if body.is_end_stream() {
                            end(guard);
                        }
                    }
                    Some(Err(_)) => *guard = None,
                    None => end(guard),
                }
                Poll::Ready(frame)
            }
            KindProj::Rejection { bytes } if bytes.is_empty() => Poll::Ready(None),
            KindProj::Rejection { bytes } => Poll::Ready(Some(Ok(Frame::data(mem::take(bytes))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body, guard } => {
                let is_ended = body.is_end_stream();
                if let Some(guard) = guard
                    && is_ended
                {
                    guard.mark_complete();
                }
                is_ended
            }
            Kind::Rejection { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body, .. } => body.size_hint(),
            Kind::Rejection { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

fn count(guard: &mut Option<Box<BodyGuard>>, part: &Frame<Bytes>) {
    if let Some(guard) = guard {
        guard.count_bytes(part.data_ref().map_or(0, Bytes::len));
    }
}

fn end(guard: &mut Option<Box<BodyGuard>>) {
    if let Some(guard) = guard.take() {
        guard.end();
    }
}
