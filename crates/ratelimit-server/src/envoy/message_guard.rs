//! Bounds of gRPC messages that hold before they are decoded.

use std::{
    convert::Infallible,
    mem::size_of,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, extract::Request, http::Response};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use metrics::counter;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use ratelimit_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::rate_limit_quota::v3::{
        bucket_id::BucketEntry, rate_limit_quota_usage_reports::BucketQuotaUsage,
    },
};
use tokio::time::Sleep;
use tonic::Status;
use tower::{Layer, Service};

use crate::{
    memory_budget::{HeldMemory, MemoryBudget, ReceivedBytes},
    metrics::ENVOY_REQUESTS,
};

/// The flag and the length before each message.
const PREFIX: usize = 5;

/// What is bounded in the messages of a call.
#[derive(Debug)]
pub(super) struct MessageBounds {
    /// The largest message, in bytes.
    pub(super) max_bytes: usize,
    /// The repeated fields that are counted, from the outermost.
    levels: &'static [MessageField],
    /// Whether a client sends one message, whose memory is held until the response is sent. In a stream of messages, that of
    /// one is free when the next one is asked for.
    is_unary: bool,
}

/// A field with messages, and those in it that are counted.
#[derive(Debug)]
struct MessageField {
    field: u32,
    /// The most messages of this field, in all of its parents.
    max: usize,
    /// The memory of one of them when it is decoded, without its bytes.
    decoded_bytes: usize,
    too_many: &'static str,
}

impl MessageBounds {
    /// A request of the rate limit service. Envoy sends the values of headers, up to 8 MiB of them, in each descriptor that
    /// names them, and a request that is refused would pass at Envoy.
    pub(super) const RATE_LIMIT: MessageBounds = MessageBounds {
        max_bytes: 16 << 20,
        levels: &[
            MessageField {
                field: 2,
                max: 1_024,
                decoded_bytes: size_of::<RateLimitDescriptor>(),
                too_many: "more than 1,024 descriptors",
            },
            MessageField {
                field: 1,
                max: 16_384,
                decoded_bytes: size_of::<Entry>(),
                too_many: "more than 16,384 entries",
            },
        ],
        is_unary: true,
    };

    /// A report of the quota service. 10,000 buckets are about half a mebibyte.
    pub(super) const QUOTA_REPORT: MessageBounds = MessageBounds {
        max_bytes: 16 << 20,
        levels: &[
            MessageField {
                field: 2,
                max: 200_000,
                decoded_bytes: size_of::<BucketQuotaUsage>(),
                too_many: "a report has more than 200,000 usages",
            },
            MessageField {
                field: 1,
                max: 200_000,
                decoded_bytes: 0,
                too_many: "a report has more than 200,000 bucket ids",
            },
            MessageField {
                field: 1,
                max: 400_000,
                decoded_bytes: size_of::<BucketEntry>(),
                too_many: "the bucket ids of a report have more than 400,000 entries",
            },
        ],
        is_unary: false,
    };

    /// A request of the health and reflection services.
    pub(super) const SMALL: MessageBounds = MessageBounds {
        max_bytes: 64 << 10,
        levels: &[],
        is_unary: false,
    };

    /// The memory that a message takes when it is decoded, without its bytes. A malformed message counts up to its mistake,
    /// where decoding it ends too.
    fn decoded_bytes(&self, message: &[u8]) -> Result<usize, &'static str> {
        let mut counts = vec![0; self.levels.len()];
        count_fields(message, self.levels, &mut counts)?;
        let levels = self.levels.iter().zip(counts);
        Ok(levels
            .map(|(level, count)| level.decoded_bytes * count)
            .sum())
    }
}

/// Counts the fields of each level. Ends at the first one above a maximum.
fn count_fields(
    mut rest: &[u8],
    levels: &[MessageField],
    counts: &mut [usize],
) -> Result<(), &'static str> {
    let (Some((level, inner_levels)), Some((count, inner_counts))) =
        (levels.split_first(), counts.split_first_mut())
    else {
        return Ok(());
    };
    while !rest.is_empty() {
        let Ok((tag, wire_type)) = decode_key(&mut rest) else {
            return Ok(());
        };
        if tag != level.field || wire_type != WireType::LengthDelimited {
            let skipped = skip_field(wire_type, tag, &mut rest, DecodeContext::default());
            if skipped.is_err() {
                return Ok(());
            }
            continue;
        }
        let length = decode_varint(&mut rest).ok();
        let length = length.and_then(|length| usize::try_from(length).ok());
        let Some((inner, others)) = length.and_then(|length| rest.split_at_checked(length)) else {
            return Ok(());
        };
        *count += 1;
        if *count > level.max {
            return Err(level.too_many);
        }
        count_fields(inner, inner_levels, inner_counts)?;
        rest = others;
    }
    Ok(())
}

/// A layer that bounds the messages of calls before they are decoded, and holds their memory.
#[derive(Clone, Debug)]
pub(super) struct MessageGuardLayer {
    pub(super) bounds: &'static MessageBounds,
    pub(super) budget: MemoryBudget,
    /// The most time from the first byte of a message to its last, and of a unary call to its end.
    pub(super) time_limit: Duration,
}

/// The service of [`MessageGuardLayer`].
#[derive(Clone, Debug)]
pub(super) struct MessageGuard<S> {
    inner: S,
    bounds: &'static MessageBounds,
    budget: MemoryBudget,
    time_limit: Duration,
}

impl<S> Layer<S> for MessageGuardLayer {
    type Service = MessageGuard<S>;

    fn layer(&self, inner: S) -> MessageGuard<S> {
        MessageGuard {
            inner,
            bounds: self.bounds,
            budget: self.budget.clone(),
            time_limit: self.time_limit,
        }
    }
}

impl<S, B> Service<Request> for MessageGuard<S>
where
    S: Service<Request, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let memory = Arc::new(Mutex::new(self.budget.hold()));
        let (bounds, time_limit, held) = (self.bounds, self.time_limit, Arc::clone(&memory));
        let request =
            request.map(|body| Body::new(BoundedMessages::new(body, bounds, time_limit, held)));
        let responding = self.inner.call(request);
        Box::pin(async move {
            let mut response = responding.await?.map(Body::new);
            if bounds.is_unary {
                let memory = lock(&memory).take();
                response.extensions_mut().insert(memory.until_sent());
            }
            Ok(response)
        })
    }
}

fn lock(memory: &Mutex<HeldMemory>) -> MutexGuard<'_, HeldMemory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body whose frames are whole messages within bounds.
struct BoundedMessages {
    body: Body,
    bounds: &'static MessageBounds,
    time_limit: Duration,
    /// The beginning of a message.
    received: ReceivedBytes,
    /// What follows it in the last frame.
    frame: Bytes,
    /// Whether the message of a unary call was passed on.
    has_call: bool,
    /// When the rest of the message is late, while it is waited for.
    late: Option<Pin<Box<Sleep>>>,
    memory: Arc<Mutex<HeldMemory>>,
}

impl BoundedMessages {
    fn new(
        body: Body,
        bounds: &'static MessageBounds,
        time_limit: Duration,
        memory: Arc<Mutex<HeldMemory>>,
    ) -> BoundedMessages {
        BoundedMessages {
            body,
            bounds,
            time_limit,
            received: ReceivedBytes::default(),
            frame: Bytes::new(),
            has_call: false,
            late: None,
            memory,
        }
    }

    /// Adds bytes of the last frame to the message until it has `length`. Returns whether it has.
    fn receive_up_to(&mut self, length: usize) -> bool {
        let missing = length - self.received.len();
        let part = self.frame.split_to(missing.min(self.frame.len()));
        self.received.push(&part);
        self.received.len() == length
    }

    /// Takes a message that has arrived.
    fn take_message(&mut self) -> Result<Option<Bytes>, Status> {
        if self.received.len() < PREFIX && !self.receive_up_to(PREFIX) {
            return Ok(None);
        }
        let Some([flag, length @ ..]) = self.received.first::<PREFIX>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(length) as usize;
        let max = self.bounds.max_bytes;
        if length > max {
            return Err(Status::out_of_range(format!(
                "the message has {length} bytes, and at most {max} are allowed"
            )));
        }
        if !self.receive_up_to(PREFIX + length) {
            return Ok(None);
        }
        let message = self.received.take();
        // Compressed messages are refused later.
        if flag == 0 {
            let decoded = self.bounds.decoded_bytes(&message[PREFIX..]);
            let decoded = decoded.map_err(|why| {
                if self.bounds.is_unary {
                    counter!(ENVOY_REQUESTS, "code" => "invalid").increment(1);
                }
                Status::invalid_argument(why)
            })?;
            self.hold(decoded)?;
        }
        if self.bounds.is_unary {
            self.has_call = true;
        } else {
            self.late = None;
        }
        Ok(Some(message))
    }

    /// Whether the rest of a message takes too long. A stream may wait between two messages for as long as it likes, and a
    /// unary call holds its memory until it ends.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.received.is_empty() && !self.has_call {
            return Poll::Pending;
        }
        let time_limit = self.time_limit;
        let late = self
            .late
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time_limit)));
        late.as_mut().poll(context)
    }

    /// The next message, or the end of all.
    fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(message) = self.take_message().transpose() {
                return Poll::Ready(Some(message.map(Frame::data)));
            }
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(why))) => {
                    return Poll::Ready(Some(Err(Status::from_error(Box::new(why)))));
                }
                Poll::Ready(None) if !self.received.is_empty() => {
                    // The decoder reports a message that was cut off.
                    let rest = self.received.take();
                    return Poll::Ready(Some(Ok(Frame::data(rest))));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    return self.poll_late(context).map(|()| {
                        let why = "the message did not arrive in time";
                        Some(Err(Status::deadline_exceeded(why)))
                    });
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    if let Err(why) = self.hold(data.len()) {
                        return Poll::Ready(Some(Err(why)));
                    }
                    self.frame = data;
                }
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }

    fn hold(&self, bytes: usize) -> Result<(), Status> {
        let held = lock(&self.memory).grow(bytes);
        held.map_err(|_| Status::resource_exhausted("too many bytes of requests are in flight"))
    }
}

impl HttpBody for BoundedMessages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if !self.bounds.is_unary {
            // The messages before are decoded.
            let rest = self.received.len() + self.frame.len();
            lock(&self.memory).shrink_to(rest);
        }
        let polled = self.poll_message(context);
        if let Poll::Ready(Some(Err(_))) = polled {
            // Nothing of a call that is refused is of use, while its refusal travels.
            self.received.take();
            self.frame.clear();
            self.late = None;
            drop(lock(&self.memory).take());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.received.is_empty() && self.frame.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _};
    use http_body_util::BodyExt as _;
    use prost::Message as _;
    use ratelimit_envoy::proto::envoy::service::ratelimit::v3::RateLimitRequest;

    use super::*;

    const TIME_LIMIT: Duration = Duration::from_secs(10);

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0][..], &length, message].concat()
    }

    fn bounded(bytes: &[u8], bounds: &'static MessageBounds, part: usize) -> BoundedMessages {
        let parts: Vec<Result<Bytes, axum::Error>> = bytes
            .chunks(part)
            .map(|part| Ok(Bytes::copy_from_slice(part)))
            .collect();
        let parts = futures_util::stream::iter(parts);
        with_body(Body::from_stream(parts), bounds, &MemoryBudget::envoy())
    }

    fn with_body(
        body: Body,
        bounds: &'static MessageBounds,
        budget: &MemoryBudget,
    ) -> BoundedMessages {
        let memory = Arc::new(Mutex::new(budget.hold()));
        BoundedMessages::new(body, bounds, TIME_LIMIT, memory)
    }

    /// A body of these parts that does not end.
    fn stalled(parts: Vec<Vec<u8>>) -> Body {
        let parts = parts
            .into_iter()
            .map(|part| Ok::<_, axum::Error>(Bytes::from(part)));
        let parts = futures_util::stream::iter(parts);
        Body::from_stream(parts.chain(futures_util::stream::pending()))
    }

    #[tokio::test]
    async fn messages_are_passed_on_whole_and_their_bytes_stay_the_same() {
        let request = RateLimitRequest {
            domain: "edge".to_owned(),
            descriptors: vec![RateLimitDescriptor::default(); 1_024],
            hits_addend: 1,
        };
        let message = framed(&request.encode_to_vec());
        let bytes = [&message[..], &message, &[0, 0, 0]].concat();

        let mut body = bounded(&bytes, &MessageBounds::RATE_LIMIT, 7);

        for expected in [&message[..], &message, &[0, 0, 0]] {
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), expected);
        }
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn messages_with_too_many_parts_are_refused_before_they_are_decoded() {
        let entries = [0x0a, 0].repeat(16_385);
        let mut one_descriptor = vec![0x12];
        prost::encoding::encode_varint(entries.len() as u64, &mut one_descriptor);
        one_descriptor.extend(entries);
        for (message, bounds) in [
            ([0x12, 0].repeat(1_025), &MessageBounds::RATE_LIMIT),
            (one_descriptor, &MessageBounds::RATE_LIMIT),
            ([0x12, 0].repeat(200_001), &MessageBounds::QUOTA_REPORT),
        ] {
            let mut body = bounded(&framed(&message), bounds, 10_000);
            let refused = body.frame().await.unwrap().unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        }
        let mut body = bounded(&[0, 255, 255, 255, 255], &MessageBounds::RATE_LIMIT, 5);
        let refused = body.frame().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), tonic::Code::OutOfRange);
    }

    #[tokio::test]
    async fn the_memory_of_a_stream_is_that_of_its_last_message() {
        let message = framed(&[0x12, 0].repeat(1_000));
        let mut body = bounded(
            &message.repeat(3),
            &MessageBounds::QUOTA_REPORT,
            message.len(),
        );
        let memory = Arc::clone(&body.memory);
        let held = || lock(&memory).bytes();

        let mut most = 0;
        while let Some(frame) = body.frame().await {
            frame.unwrap();
            most = most.max(held());
        }

        assert_eq!(most, message.len() + 1_000 * size_of::<BucketQuotaUsage>());
        assert_eq!(held(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_stalls_is_refused_after_the_time_limit_and_holds_nothing() {
        let mut message = framed(&vec![0; 1 << 20]);
        message.pop();
        for bounds in [&MessageBounds::RATE_LIMIT, &MessageBounds::QUOTA_REPORT] {
            let parts = message.chunks(60_000).map(<[u8]>::to_vec).collect();
            let mut body = with_body(stalled(parts), bounds, &MemoryBudget::envoy());
            let memory = Arc::clone(&body.memory);
            let held = || lock(&memory).bytes();
            assert!(body.frame().now_or_never().is_none());
            assert_eq!(held(), message.len());
            let asked = tokio::time::Instant::now();

            let refused = body.frame().await.unwrap().unwrap_err();

            assert_eq!(refused.code(), tonic::Code::DeadlineExceeded);
            assert_eq!(asked.elapsed().as_secs(), TIME_LIMIT.as_secs());
            assert_eq!((held(), body.received.len()), (0, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_unary_call_that_does_not_end_is_refused_and_a_stream_may_wait_between_messages() {
        let message = framed(&[0x12, 0]);
        for (bounds, is_refused) in [
            (&MessageBounds::RATE_LIMIT, true),
            (&MessageBounds::QUOTA_REPORT, false),
        ] {
            let body = stalled(vec![message.clone()]);
            let mut body = with_body(body, bounds, &MemoryBudget::envoy());
            body.frame().await.unwrap().unwrap();

            let next = tokio::time::timeout(TIME_LIMIT * 10, body.frame()).await;

            assert_eq!(next.is_ok(), is_refused);
            assert_eq!(lock(&body.memory).bytes(), 0);
        }
    }

    #[tokio::test]
    async fn calls_are_answered_while_stalled_messages_take_the_whole_budget() {
        let budget = MemoryBudget::envoy();
        let mut message = framed(&vec![0; 16 << 20]);
        message.pop();
        let stalls: Vec<BoundedMessages> = (0..3)
            .map(|_| {
                let parts = message.chunks(60_000).map(<[u8]>::to_vec).collect();
                let mut body = with_body(stalled(parts), &MessageBounds::RATE_LIMIT, &budget);
                let _ = body.frame().now_or_never();
                body
            })
            .collect();
        assert!(lock(&stalls[0].memory).bytes() > 15 << 20);

        let body = Body::from(framed(&[0x12, 0].repeat(100)));
        let mut body = with_body(body, &MessageBounds::RATE_LIMIT, &budget);

        body.frame().await.unwrap().unwrap();
    }
}
