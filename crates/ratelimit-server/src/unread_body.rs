//! The rest of a request body that a handler did not read.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, extract::Request};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// Maximum size and time of a rest that is read.
const MAX_REST_BYTES: usize = 64 * 1024;
const MAX_REST_TIME: Duration = Duration::from_secs(1);

/// Receives the rest of a body.
///
/// Over HTTP/2, dropping an unread body before the response is sent resets the stream, and the client never sees the
/// response: a refusal looks like a broken connection. So the rest is read first.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadBody(Arc<Mutex<Option<Body>>>);

impl UnreadBody {
    /// Replaces the body of a request by one that leaves its rest here.
    pub(crate) fn hold(request: Request) -> (Request, UnreadBody) {
        let unread = UnreadBody::default();
        let rest = unread.clone();
        let request = request.map(|body| Body::new(HeldBody { body, rest }));
        (request, unread)
    }

    /// Reads the rest, if the request has ended.
    pub(crate) async fn discard(self) {
        let rest = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(rest) = rest {
            // A longer or slower rest is dropped, which resets the stream.
            let _ = tokio::time::timeout(MAX_REST_TIME, read_rest(rest)).await;
        }
    }
}

/// Drops each frame before it reads the next.
async fn read_rest(mut rest: Body) {
    let mut length = 0;
    while let Some(Ok(frame)) = rest.frame().await
        && length <= MAX_REST_BYTES
    {
        length += frame.data_ref().map_or(0, Bytes::len);
    }
}

struct HeldBody {
    body: Body,
    rest: UnreadBody,
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            let rest = std::mem::take(&mut self.body);
            let mut slot = self.rest.0.lock().unwrap_or_else(PoisonError::into_inner);
            *slot = Some(rest);
        }
    }
}
