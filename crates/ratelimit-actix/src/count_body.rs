//! Counting the bodies of requests whose length is unknown.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use actix_web::{HttpMessage as _, HttpRequest, dev::Payload, error::PayloadError, web::Bytes};
use futures_core::Stream;
use ratelimit_http::middleware::BodyCounter;

use crate::framework::Config;

/// The body of a request whose bytes are counted as they are read.
struct CountedPayload {
    payload: Payload,
    counter: Option<BodyCounter>,
}

/// Counts the body of a request if a limit needs it.
pub(crate) fn count_body(config: &Config, request: &HttpRequest, payload: Payload) -> Payload {
    if !config.counts_body(request) {
        return payload;
    }
    let counter = BodyCounter::default();
    request.extensions_mut().insert(counter.count());
    if matches!(payload, Payload::None) {
        return payload;
    }
    let counter = Some(counter);
    Payload::Stream {
        payload: Box::pin(CountedPayload { payload, counter }),
    }
}

impl Stream for CountedPayload {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let part = ready!(Pin::new(&mut self.payload).poll_next(cx));
        match (&part, &self.counter) {
            (Some(Ok(bytes)), Some(counter)) => counter.count_bytes(bytes.len()),
            (Some(Ok(_)), None) => {}
            (Some(Err(_)) | None, _) => self.counter = None,
        }
        Poll::Ready(part)
    }
}
