//! Connections to Redis. This module holds the connection to one server, which reconnects in the
//! background.
//!
//! One background task for each server runs `ConnectionInner::reconnect_loop`:
//!
//! | state | slot | ends when | writes |
//! |---|---|---|---|
//! | waiting | `None` | the delay of [`Backoff`] is over | |
//! | handshake | `None` | it succeeds or fails | `rate_limiter_reconnects_total`, "no connection" |
//! | published | `Some` | a call or a probe fails; five calls in a row only start a probe | `rate_limiter_store_up` 1, "connected to Redis" |
//! | broken | `None` | the task notices, at most 250 ms later | `rate_limiter_store_up` 0, "lost the connection" |
//!
//! The slot is the circuit breaker: `None` is open, the handshake is the probe, `Some` is closed
//! (`docs/decisions/0004-the-breaker-is-in-the-link.md`).

pub(in crate::store::redis) mod backoff;
mod breaker;
pub(in crate::store::redis) mod clock_offset;
pub(in crate::store::redis) mod cluster;
pub(in crate::store::redis) mod error;
pub(in crate::store::redis) mod external;
pub(in crate::store::redis) mod handshake;
mod live;
pub(in crate::store::redis) mod outage_log;
pub(in crate::store::redis) mod probe;
pub(in crate::store::redis) mod router;
pub(in crate::store::redis) mod task;
mod topology;
pub(in crate::store::redis) mod work_queue;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};

use crate::metrics;
use crate::store::redis::{
    config::Timeouts,
    connection::{
        backoff::Backoff,
        breaker::MAX_TIMEOUTS,
        clock_offset::ClockOffset,
        error::HandshakeError,
        handshake::{Endpoint, Handshake, ServerInfo, open},
        live::LiveConnection,
        outage_log::OutageLog,
        probe::probe,
        task::RespawningTask,
    },
};

/// Interval between heartbeats. A connection without a reply since the last heartbeat is probed.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Heartbeats between two reads of a bounded server's memory: 2 s. INFO is too large for each one.
const BEATS_PER_MEMORY_POLL: u64 = 4;
/// The part of `maxmemory` from which on a warning is logged.
const FULL_PERCENT: u64 = 90;
/// Heartbeats until a connection that replaced another is logged as connected: 5 s. A flapping
/// server does not fill the log.
const BEATS_UNTIL_STABLE: u64 = 10;
/// The shortest time between two probes of a server whose calls are slow. It is that between two
/// attempts to connect.
const PROBE_PAUSE: Duration = Duration::from_millis(250);
/// Steps in which the time of a probe is slept.
const PROBE_STEPS: u32 = 16;
/// Round trips of a probe on a new connection: TCP, TLS, the greeting, SELECT and the probe.
const PROBE_ROUND_TRIPS: u32 = 6;

/// A Redis connection that reconnects in the background.
///
/// - [`current`](Self::current) returns the connection or `None`; it never waits.
/// - [`first_attempt`](Self::first_attempt) waits while the very first attempt to connect is under
///   way. Later attempts are not waited for.
/// - A failed call reports the connection with [`mark_broken`](Self::mark_broken); one background
///   task replaces it, after pauses that grow from 250 ms to one second.
/// - A new connection is published only after AUTH, one call of every script that writes, and one
///   more that was answered within the timeout of a hit.
/// - An idle connection is probed every 500 ms.
/// - Five calls in a row without a reply in time start a probe on a new connection. If that is not
///   answered in time, or this connection gives no reply at all, it is taken out of use. So it is if
///   another probe is due before any call was answered in time.
/// - The task and the sockets live on the runtime of the caller that started the task. Dropping
///   this value aborts the task.
#[derive(Debug)]
pub(in crate::store::redis) struct ManagedConnection {
    shared: Arc<ConnectionInner>,
    task: RespawningTask,
}

/// The part that the background task shares with callers. The task holds a clone of its `Arc`.
#[derive(Debug)]
struct ConnectionInner {
    /// The server. The address of a sentinel's master is looked up for each attempt.
    endpoint: Endpoint,
    /// The name of the server in logs and metrics.
    server: String,
    timeouts: Timeouts,
    /// The reserved key of probes.
    probe: String,
    /// The connection in use. Only the background task sets `Some`; callers and the task set
    /// `None`.
    slot: watch::Sender<Option<Arc<LiveConnection>>>,
    /// Whether the first attempt to connect has ended: `slot` holds the connection, or it failed.
    has_attempted: AtomicBool,
    /// The throttled log lines, shared by all connections of a store.
    log: Arc<OutageLog>,
    /// Notified when a connection is lost. A cluster then fetches its slot map.
    lost: Arc<Notify>,
}

impl ManagedConnection {
    pub(in crate::store::redis) fn new(
        endpoint: Endpoint,
        timeouts: Timeouts,
        probe: String,
        log: Arc<OutageLog>,
        lost: Arc<Notify>,
    ) -> ManagedConnection {
        let shared = ConnectionInner {
            server: endpoint.to_string(),
            endpoint,
            timeouts,
            probe,
            slot: watch::Sender::new(None),
            has_attempted: AtomicBool::new(false),
            log,
            lost,
        };
        ManagedConnection {
            shared: Arc::new(shared),
            task: RespawningTask::default(),
        }
    }

    /// The connection, if there is one now. Starts the background task with the first call.
    ///
    /// Outside of a runtime the task is not started, and the slot is returned as it is.
    pub(in crate::store::redis) fn current(&self) -> Option<Arc<LiveConnection>> {
        self.ensure_task();
        self.shared.slot.borrow().clone()
    }

    /// Whether the first attempt to connect has not ended yet.
    pub(in crate::store::redis) fn is_connecting(&self) -> bool {
        // The slot is set first, so a caller that waited for it goes on.
        !self.shared.has_attempted.load(Ordering::Acquire) && self.shared.slot.borrow().is_none()
    }

    /// Has no hit wait for the first attempt, for a server that the store did not start with.
    pub(in crate::store::redis) fn skip_first_attempt(&self) {
        self.shared.has_attempted.store(true, Ordering::Release);
    }

    /// Waits until the first attempt to connect has ended, well or badly. The caller sets the time limit.
    pub(in crate::store::redis) async fn first_attempt(&self) {
        self.ensure_task();
        let mut slot = self.shared.slot.subscribe();
        // The slot is locked here, so this is not `is_connecting`.
        let has_ended = |slot: &Option<Arc<LiveConnection>>| {
            slot.is_some() || self.shared.has_attempted.load(Ordering::Acquire)
        };
        let _ = slot.wait_for(has_ended).await;
    }

    /// Waits until there is a connection, without a time limit of its own.
    pub(in crate::store::redis) async fn wait_connected(&self) {
        self.ensure_task();
        let mut slot = self.shared.slot.subscribe();
        // The sender lives in `self`, so the wait ends only with a connection.
        let _ = slot.wait_for(Option::is_some).await;
    }

    /// Takes a broken connection out of use, unless another has replaced it already.
    pub(in crate::store::redis) fn mark_broken(
        &self,
        connected: &Arc<LiveConnection>,
        fault: String,
    ) {
        self.shared.mark_broken(connected, fault);
    }

    /// Counts a call without a reply in time. Returns whether that demanded a probe.
    pub(in crate::store::redis) fn record_timeout(
        &self,
        connected: &Arc<LiveConnection>,
        elapsed: Duration,
    ) -> bool {
        self.shared.record_timeout(connected, elapsed)
    }

    /// The log lines of the store.
    pub(in crate::store::redis) fn log(&self) -> &OutageLog {
        &self.shared.log
    }

    /// Starts the background task, unless it runs already.
    fn ensure_task(&self) {
        self.task.ensure_running(|| {
            // The sockets of the task before this one live on a runtime that is blocked or gone.
            self.shared.slot.send_replace(None);
            metrics::store_up(&self.shared.server, false);
            Arc::clone(&self.shared).reconnect_loop()
        });
    }
}

impl ConnectionInner {
    /// Clears the slot if it still holds this connection: a late error must not take its successor
    /// out of use.
    fn mark_broken(&self, connected: &Arc<LiveConnection>, fault: String) {
        let _ = connected.fault.set(fault);
        self.slot.send_if_modified(|slot| {
            let same = is_current(slot.as_ref(), connected);
            if same {
                *slot = None;
            }
            same
        });
    }

    /// Counts a call without a reply in time. Returns whether that demanded a probe.
    ///
    /// Writes `rate_limiter_slow_calls_total`. The heartbeat writes the log line for all slow calls
    /// since the last one.
    fn record_timeout(&self, connected: &Arc<LiveConnection>, elapsed: Duration) -> bool {
        metrics::slow_call(&self.server, elapsed);
        connected.slow_calls.fetch_add(1, Ordering::Relaxed);
        let is_probe_due = connected.breaker.record_timeout();
        if is_probe_due {
            connected.suspected.notify_one();
        }
        is_probe_due
    }

    /// Connects, serves the connection until it breaks, and starts over. It never returns; an abort
    /// ends it.
    async fn reconnect_loop(self: Arc<ConnectionInner>) {
        let server = &self.server;
        let _panic_guard = EndOnPanic(&self);
        metrics::register_counters(server);
        let mut backoff = Backoff::new();
        let mut is_first = true;
        loop {
            backoff.wait().await;
            if self.has_attempted.load(Ordering::Relaxed) {
                metrics::reconnecting(server);
            }
            match self.endpoint.connect(&self.timeouts, &self.probe).await {
                Ok(handshake) => {
                    self.publish(handshake, is_first).await;
                    // A task that was restarted on another runtime begins with `is_first` and logs
                    // at once.
                    is_first = false;
                    backoff.reset();
                }
                Err(error) => {
                    if let HandshakeError::Slow { elapsed, .. } = error {
                        metrics::slow_call(server, elapsed);
                    }
                    self.has_attempted.store(true, Ordering::Release);
                    // Wakes the hits that wait for the first attempt.
                    self.slot.send_replace(None);
                    metrics::store_up(server, false);
                    self.log.log_unreachable(server, &error);
                }
            }
        }
    }

    /// Puts a connection to use until it breaks. The caller reconnects when this returns.
    async fn publish(&self, handshake: Handshake, is_first: bool) {
        let server = &self.server;
        let about = handshake.about.clone();
        let version = about.version.as_deref().unwrap_or("unknown");
        metrics::server_version(version);
        if is_first {
            tracing::info!(server, version, "connected to Redis");
        }
        if let Some(rule) = &about.eviction {
            self.log.log_eviction(server, rule);
        }
        let connected = Arc::new(LiveConnection::new(handshake));
        self.slot.send_replace(Some(Arc::clone(&connected)));
        self.has_attempted.store(true, Ordering::Release);
        metrics::store_up(server, true);
        let announced = (!is_first).then_some(version);
        let mut monitored =
            pin!(self.monitor(about.memory_percent.is_some(), announced, &connected));
        let mut probed = pin!(self.probe_when_slow(&connected));
        let until_broken = poll_fn(|cx| {
            if monitored.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            probed.as_mut().poll(cx)
        });
        until_broken.await;
        self.slot.send_replace(None);
        self.lost.notify_one();
        metrics::store_up(server, false);
        if about.memory_percent.is_some() {
            metrics::redis_memory(server, None);
        }
        let fault = connected.fault.get().map_or("", String::as_str);
        self.log.log_lost(server, fault);
    }

    /// Returns when a call has marked the connection as broken, or a probe of the idle connection
    /// failed.
    ///
    /// Calls of other tasks keep their clone of the connection until their own deadline.
    async fn monitor(
        &self,
        is_bounded: bool,
        announced: Option<&str>,
        connected: &Arc<LiveConnection>,
    ) {
        let server = &self.server;
        let mut slot = self.slot.subscribe();
        let mut replies_before = 0;
        for beat in 0_u64.. {
            if let Some(version) = announced.filter(|_| beat == BEATS_UNTIL_STABLE) {
                self.log.log_reconnected(server, version);
            }
            if is_bounded && beat.is_multiple_of(BEATS_PER_MEMORY_POLL) {
                self.poll_memory(connected).await;
            }
            let taken_out = slot.wait_for(|slot| !is_current(slot.as_ref(), connected));
            if tokio::time::timeout(HEARTBEAT, taken_out).await.is_ok() {
                return;
            }
            // Set again and again: another store of this process may have removed the gauge of the same server.
            metrics::store_up(server, true);
            let slow_calls = connected.slow_calls.swap(0, Ordering::Relaxed);
            if slow_calls > 0 {
                let timeout = self.timeouts.timeout;
                self.log.log_slow(server, slow_calls, timeout);
            }
            let replies = connected.replies.load(Ordering::Relaxed);
            if replies != replies_before {
                replies_before = replies;
                continue;
            }
            if let Err(fault) = self.probe_idle(connected).await {
                let _ = connected.fault.set(fault);
                return;
            }
        }
    }

    /// Probes the server whenever five calls in a row had no reply in time. Returns when a probe has failed, which opens
    /// the circuit breaker.
    ///
    /// Slow calls may only have waited for each other. So the server is judged by a new connection, on which nothing waits:
    ///
    /// | the new connection | this connection | result |
    /// |---|---|---|
    /// | not answered in time | | out of use |
    /// | answered | not answered | out of use: a half-open connection, for example |
    /// | answered | answered | stays in use, and the count starts anew |
    /// | answered again, and no call in between | | out of use: each of its calls is slow |
    async fn probe_when_slow(&self, connected: &LiveConnection) {
        loop {
            connected.suspected.notified().await;
            let started = Instant::now();
            if connected.breaker.is_probe_due()
                && let Err(fault) = self.probe_anew(connected).await
            {
                let _ = connected.fault.set(fault);
                return;
            }
            // Another server may keep this one slow for long: at most four probes a second.
            tokio::time::sleep(PROBE_PAUSE.saturating_sub(started.elapsed())).await;
        }
    }

    /// Probes the server on a new connection, and then this connection.
    ///
    /// # Errors
    ///
    /// The text for the log line of the lost connection.
    async fn probe_anew(&self, connected: &LiveConnection) -> Result<(), String> {
        let timeout = self.timeouts.timeout;
        let slow = |probed: &str, within: Duration| {
            let (timeout, within) = (timeout.as_millis(), within.as_millis());
            format!(
                "{MAX_TIMEOUTS} calls in a row were slower than {timeout} ms, and a probe on {probed} was not answered \
                 within {within} ms"
            )
        };
        // Opening a connection takes some round trips, and the probe one.
        let within = timeout + connected.clock.min_round_trip() * PROBE_ROUND_TRIPS;
        let anew = async {
            let mut connection = open(connected.address.clone(), &self.timeouts).await?;
            probe(&mut connection, &self.probe, &ClockOffset::new()).await?;
            Ok::<(), HandshakeError>(())
        };
        // A server that refuses the connection, for example because it has too many, has answered.
        if answered_within(within, anew).await.is_none() {
            return Err(slow("a new connection", within));
        }
        if connected.breaker.has_probe_passed() {
            let timeout = timeout.as_millis();
            return Err(format!(
                "no call was answered within {timeout} ms since a probe on a new connection was"
            ));
        }
        let within = within.max(self.timeouts.connect_timeout);
        let mut connection = connected.connection();
        let own = probe(&mut connection, &self.probe, &connected.clock);
        match answered_within(within, own).await {
            Some(reply) => reply.map_err(|error| error.to_string())?,
            None => return Err(slow("the same connection", within)),
        }
        connected.breaker.record_probe();
        Ok(())
    }

    /// Probes a connection that had no reply since the last heartbeat.
    ///
    /// # Errors
    ///
    /// The text for the log line of the lost connection: the server or the script failed, or there
    /// was no reply within the connect timeout (250 ms). A reply between the two timeouts only
    /// counts for the breaker.
    async fn probe_idle(&self, connected: &Arc<LiveConnection>) -> Result<(), String> {
        let started = Instant::now();
        let mut connection = connected.connection();
        let reply = probe(&mut connection, &self.probe, &connected.clock);
        match tokio::time::timeout(self.timeouts.connect_timeout, reply).await {
            Ok(Ok(())) if started.elapsed() > self.timeouts.timeout => {
                self.record_timeout(connected, started.elapsed());
                Ok(())
            }
            Ok(Ok(())) => {
                // Not `record_reply`: a probe does not count as a reply, or every second heartbeat
                // would skip its probe.
                connected.breaker.reset();
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => {
                let timeout = self.timeouts.connect_timeout.as_millis();
                Err(format!(
                    "an idle connection was not answered within {timeout} ms"
                ))
            }
        }
    }

    /// Reads the used memory and the number of evicted keys into the metrics, and warns of a server that is almost full. A
    /// failure is ignored: the next probe finds it.
    async fn poll_memory(&self, connected: &LiveConnection) {
        let mut connection = connected.connection();
        let info = ServerInfo::fetch(&mut connection);
        if let Ok(Ok(about)) = tokio::time::timeout(self.timeouts.connect_timeout, info).await {
            metrics::evicted(&self.server, about.evicted);
            if let Some(percent) = about.memory_percent {
                metrics::redis_memory(&self.server, Some(percent));
                if percent >= FULL_PERCENT && about.eviction.is_none() {
                    self.log.log_almost_full(&self.server, percent);
                }
            }
        }
    }
}

/// The answer to a probe that waits for `span`, or longer where this process is late itself.
///
/// The time is slept in steps. A busy runtime makes each step longer, as it makes each step of the probe: a process that
/// lacks processor time does not take Redis for slow.
async fn answered_within<T>(span: Duration, probe: impl Future<Output = T>) -> Option<T> {
    let mut probe = pin!(probe);
    let mut elapsed = pin!(async {
        for _ in 0..PROBE_STEPS {
            tokio::time::sleep(span / PROBE_STEPS).await;
        }
    });
    poll_fn(|cx| {
        if let Poll::Ready(answer) = probe.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        elapsed.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Ends the first attempt if it panics. Without that, every hit would wait for it.
struct EndOnPanic<'a>(&'a ConnectionInner);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.has_attempted.store(true, Ordering::Release);
            self.0.slot.send_replace(None);
        }
    }
}

impl Drop for ConnectionInner {
    /// Removes the gauge of a server that is not used any more: it is neither up nor down.
    fn drop(&mut self) {
        metrics::store_removed(&self.server);
    }
}

fn is_current(slot: Option<&Arc<LiveConnection>>, connected: &Arc<LiveConnection>) -> bool {
    slot.is_some_and(|held| Arc::ptr_eq(held, connected))
}
