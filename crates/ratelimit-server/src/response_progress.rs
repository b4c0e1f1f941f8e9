//! Whether the peer of a connection takes its responses.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{body::Body, http::Response};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::memory_budget::{HeldForResponse, MemoryBudget};

/// A peer that takes no bytes of a response for this long loses its connection.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The same for a peer whose responses hold memory of a budget of which less than half is free.
const SHORT_STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// A response is handed to the connection in parts of this size, so that a slow peer makes progress.
const MAX_PART: usize = 64 * 1024;

/// Time between two looks at a connection with requests, and at one without.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);
const IDLE_INTERVAL: Duration = Duration::from_secs(5);

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// The peer takes no bytes of a response.
    Stalled,
    /// An HTTP/2 connection without requests. HTTP/1 connections are closed by hyper.
    Idle,
}

/// What a connection waits for.
///
/// - A write that the socket does not take is found by [`TrackedStream`].
/// - With HTTP/2 a peer can leave the socket writable and open no window for responses. So the parts of these responses are
///   counted until the connection drops them, which it does when they are sent.
#[derive(Debug)]
pub(crate) struct ResponseProgress {
    epoch: Instant,
    /// Milliseconds from the epoch to the first write that waits, plus 1; 0 if none waits.
    write_blocked: AtomicU64,
    inner: Mutex<ProgressInner>,
}

#[derive(Debug)]
struct ProgressInner {
    /// Whether a request of HTTP/2 came.
    is_multiplexed: bool,
    /// Requests of HTTP/2 whose responses are not sent.
    requests: usize,
    idle_since: Instant,
    /// The number of responses that wait for the peer, by the millisecond of their last progress.
    waiting: BTreeMap<u64, usize>,
    /// The number of responses that hold memory, and the budget of the last one.
    holding: usize,
    budget: Option<MemoryBudget>,
}

impl ResponseProgress {
    pub(crate) fn new() -> Arc<ResponseProgress> {
        let now = Instant::now();
        Arc::new(ResponseProgress {
            epoch: now,
            write_blocked: AtomicU64::new(0),
            inner: Mutex::new(ProgressInner {
                is_multiplexed: false,
                requests: 0,
                idle_since: now,
                waiting: BTreeMap::new(),
                holding: 0,
                budget: None,
            }),
        })
    }

    /// Counts a request of HTTP/2 until the value is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenRequest {
        let mut inner = self.lock();
        inner.is_multiplexed = true;
        inner.requests += 1;
        drop(inner);
        OpenRequest(Arc::clone(self))
    }

    /// Completes when the connection is to be closed.
    pub(crate) async fn overdue(&self, idle_timeout: Duration) -> Overdue {
        loop {
            let interval = if self.is_busy() {
                BUSY_INTERVAL
            } else {
                IDLE_INTERVAL.min(idle_timeout)
            };
            tokio::time::sleep(interval).await;
            let stall_timeout = self.stall_timeout();
            if let Some(overdue) = self.find_overdue(Instant::now(), stall_timeout, idle_timeout) {
                return overdue;
            }
        }
    }

    /// How long the peer may take no bytes. Cutting off a peer whose responses hold no memory would free none.
    fn stall_timeout(&self) -> Duration {
        let inner = self.lock();
        let budget = inner.budget.as_ref().filter(|_| inner.holding > 0);
        if budget.is_some_and(MemoryBudget::is_short) {
            SHORT_STALL_TIMEOUT
        } else {
            STALL_TIMEOUT
        }
    }

    /// Whether no request of HTTP/2 is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().requests == 0
    }

    fn is_busy(&self) -> bool {
        let is_blocked = self.write_blocked.load(Ordering::Relaxed) != 0;
        is_blocked || self.lock().requests > 0
    }

    fn find_overdue(
        &self,
        now: Instant,
        stall_timeout: Duration,
        idle_timeout: Duration,
    ) -> Option<Overdue> {
        let blocked = self.write_blocked.load(Ordering::Relaxed).checked_sub(1);
        let blocked_at = blocked.map(|millis| self.epoch + Duration::from_millis(millis));
        let inner = self.lock();
        let oldest = inner.waiting.first_key_value();
        let waiting_since = oldest.map(|(millis, _)| self.epoch + Duration::from_millis(*millis));
        let has_passed = |at: Instant, time| now.saturating_duration_since(at) >= time;
        let mut stalls = blocked_at.into_iter().chain(waiting_since);
        if stalls.any(|at| has_passed(at, stall_timeout)) {
            return Some(Overdue::Stalled);
        }
        let is_idle = inner.is_multiplexed && inner.requests == 0;
        (is_idle && has_passed(inner.idle_since, idle_timeout)).then_some(Overdue::Idle)
    }

    fn record_write(&self, is_blocked: bool) {
        let was_blocked = self.write_blocked.load(Ordering::Relaxed) != 0;
        if is_blocked != was_blocked {
            let at = if is_blocked { self.millis() + 1 } else { 0 };
            self.write_blocked.store(at, Ordering::Relaxed);
        }
    }

    /// Milliseconds since the epoch.
    fn millis(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    /// Moves a response from one millisecond to another.
    fn move_response(&self, from: Option<u64>, to: Option<u64>) {
        if from == to {
            return;
        }
        let mut inner = self.lock();
        if let Some(millis) = from
            && let Some(count) = inner.waiting.get_mut(&millis)
        {
            *count -= 1;
            if *count == 0 {
                inner.waiting.remove(&millis);
            }
        }
        if let Some(millis) = to {
            *inner.waiting.entry(millis).or_default() += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ProgressInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request of HTTP/2 whose response is not sent.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<ResponseProgress>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.requests -= 1;
        if inner.requests == 0 {
            inner.idle_since = Instant::now();
        }
    }
}

/// Tracks a response until the peer has taken it. `request` is one of HTTP/2.
pub(crate) fn track_response(
    mut response: Response<Body>,
    progress: &Arc<ResponseProgress>,
    request: Option<OpenRequest>,
) -> Response<Body> {
    let held = response.extensions_mut().remove::<HeldForResponse>();
    if (request.is_none() && held.is_none()) || response.body().is_end_stream() {
        return response;
    }
    if let Some(held) = &held {
        let mut inner = progress.lock();
        inner.holding += 1;
        inner.budget = Some(held.budget().clone());
    }
    let tracked = Arc::new(TrackedResponse {
        progress: Arc::clone(progress),
        _request: request,
        held,
        state: Mutex::default(),
    });
    tracked.update(|state| state.is_next_asked = true);
    response.map(|body| {
        Body::new(TrackedBody {
            body,
            rest: Bytes::new(),
            tracked,
        })
    })
}

/// A response that is being sent.
#[derive(Debug)]
struct TrackedResponse {
    progress: Arc<ResponseProgress>,
    _request: Option<OpenRequest>,
    held: Option<HeldForResponse>,
    state: Mutex<SendState>,
}

#[derive(Debug, Default)]
struct SendState {
    /// Parts that the connection has, and has not sent.
    parts: usize,
    /// Whether the connection is expected to ask for the next part, which it does when it may send one.
    is_next_asked: bool,
    /// The millisecond of the last progress, while the response waits for the peer.
    since: Option<u64>,
}

impl TrackedResponse {
    fn update(&self, change: impl FnOnce(&mut SendState)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let is_waiting = state.parts > 0 || state.is_next_asked;
        let since = is_waiting.then(|| self.progress.millis());
        self.progress.move_response(state.since, since);
        state.since = since;
    }
}

impl Drop for TrackedResponse {
    fn drop(&mut self) {
        self.update(|state| {
            *state = SendState {
                since: state.since,
                ..SendState::default()
            }
        });
        if self.held.is_some() {
            self.progress.lock().holding -= 1;
        }
    }
}

struct TrackedBody {
    body: Body,
    /// Data of the body that the connection has not asked for.
    rest: Bytes,
    tracked: Arc<TrackedResponse>,
}

/// A part of a response. Dropping it is progress.
struct Part {
    bytes: Bytes,
    tracked: Arc<TrackedResponse>,
}

impl TrackedBody {
    fn next_part(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(MAX_PART));
        self.tracked.update(|state| {
            state.parts += 1;
            state.is_next_asked = true;
        });
        Frame::data(Bytes::from_owner(Part {
            bytes,
            tracked: Arc::clone(&self.tracked),
        }))
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.next_part())));
        }
        let frame = match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            // The peer waits for the server.
            other => {
                self.tracked.update(|state| state.is_next_asked = false);
                return other;
            }
        };
        match frame.into_data() {
            Ok(data) if data.is_empty() => Poll::Ready(Some(Ok(Frame::data(data)))),
            Ok(data) => {
                self.rest = data;
                Poll::Ready(Some(Ok(self.next_part())))
            }
            Err(trailers) => Poll::Ready(Some(Ok(trailers))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let hint = self.body.size_hint();
        let mut with_rest = SizeHint::new();
        with_rest.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            with_rest.set_upper(upper + rest);
        }
        with_rest
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.tracked.update(|state| state.is_next_asked = false);
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.tracked.update(|state| state.parts -= 1);
    }
}

/// The bytes of a connection. It records since when a write waits for the peer.
pub(crate) struct TrackedStream<S> {
    stream: S,
    progress: Arc<ResponseProgress>,
}

impl<S> TrackedStream<S> {
    pub(crate) fn new(stream: S, progress: Arc<ResponseProgress>) -> TrackedStream<S> {
        TrackedStream { stream, progress }
    }

    fn record<T>(&self, polled: Poll<T>) -> Poll<T> {
        self.progress.record_write(polled.is_pending());
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.record(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.record(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.record(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.record(polled)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    const STALL: Duration = Duration::from_secs(30);
    const IDLE: Duration = Duration::from_secs(60);

    impl ResponseProgress {
        /// What is overdue when no time has passed, after the stall timeout, and after the idle timeout.
        fn overdue_later(&self) -> [Option<Overdue>; 3] {
            let now = Instant::now();
            [Duration::ZERO, STALL, IDLE].map(|later| self.find_overdue(now + later, STALL, IDLE))
        }
    }

    #[tokio::test]
    async fn a_response_that_is_not_taken_is_overdue_until_its_last_part_is_dropped() {
        let progress = ResponseProgress::new();
        let request = progress.begin();
        assert_eq!(progress.overdue_later(), [None; 3], "the route is called");

        let response = Response::new(Body::from(vec![1; MAX_PART + 1]));
        let response = track_response(response, &progress, Some(request));
        let stalled = [None, Some(Overdue::Stalled), Some(Overdue::Stalled)];
        assert_eq!(progress.overdue_later(), stalled, "no window");

        let mut body = response.into_body();
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.data_ref().unwrap().len(), MAX_PART);
        assert!(!body.is_end_stream());
        let second = body.frame().await.unwrap().unwrap();
        assert_eq!(second.data_ref().unwrap().len(), 1);
        assert!(body.is_end_stream());
        drop((body, first));
        assert_eq!(progress.overdue_later(), stalled, "the last part waits");

        drop(second);
        assert_eq!(
            progress.overdue_later(),
            [None, None, Some(Overdue::Idle)],
            "all is sent"
        );
    }

    #[tokio::test]
    async fn a_response_that_waits_for_the_server_is_not_overdue() {
        let progress = ResponseProgress::new();
        let endless = futures_util::stream::pending::<Result<Bytes, axum::Error>>();
        let response = Response::new(Body::from_stream(endless));
        let response = track_response(response, &progress, Some(progress.begin()));

        let mut body = response.into_body();
        assert!(body.frame().now_or_never().is_none());

        assert_eq!(progress.overdue_later(), [None; 3]);
    }

    #[tokio::test]
    async fn a_write_that_waits_is_overdue_until_it_is_taken() {
        let progress = ResponseProgress::new();
        let (near, mut far) = tokio::io::duplex(10);
        let mut stream = TrackedStream::new(near, Arc::clone(&progress));
        let mut write = |bytes: &'static [u8]| {
            let written = futures_util::future::poll_fn(|context| {
                Pin::new(&mut stream).poll_write(context, bytes)
            });
            written.now_or_never()
        };

        assert!(write(&[0; 10]).is_some());
        assert_eq!(progress.overdue_later(), [None; 3]);
        assert!(write(&[0; 10]).is_none());
        let stalled = [None, Some(Overdue::Stalled), Some(Overdue::Stalled)];
        assert_eq!(progress.overdue_later(), stalled);

        tokio::io::AsyncReadExt::read_exact(&mut far, &mut [0; 10])
            .await
            .unwrap();
        assert!(write(&[0; 10]).is_some());
        assert_eq!(progress.overdue_later(), [None; 3]);
    }

    #[tokio::test]
    async fn a_peer_has_less_time_while_its_responses_hold_memory_of_a_short_budget() {
        let budget = MemoryBudget::rest();
        let mut memory = budget.hold();
        memory.grow(10 << 20).unwrap();
        assert!(budget.is_short());
        let [holds, others] = [ResponseProgress::new(), ResponseProgress::new()];
        let mut response = Response::new(Body::from("1"));
        response.extensions_mut().insert(memory.until_sent());

        let response = track_response(response, &holds, Some(holds.begin()));
        let other = Response::new(Body::from("2"));
        let _other = track_response(other, &others, Some(others.begin()));

        assert_eq!(holds.stall_timeout(), SHORT_STALL_TIMEOUT);
        assert_eq!(others.stall_timeout(), STALL_TIMEOUT);
        drop(response);
        assert_eq!(holds.stall_timeout(), STALL_TIMEOUT);
    }
}
