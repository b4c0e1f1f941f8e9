//! The connection to one server: there or not there, and one task that sees to it.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use super::{
    batcher::Batcher,
    breaker::{Breaker, MOST_TIMEOUTS},
    config::Patience,
    connect::{About, Place, Tried, Useless},
    outage_log::OutageLog,
    pace::Pace,
    probe::try_script,
    server_clock::ServerClock,
    task::Background,
};
use crate::meter;

/// How often a connection that nobody uses is tried.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// So many heartbeats lie between two looks at what a server evicted.
const BEATS_PER_LOOK: u64 = 4;
/// A connection that replaced another is announced after it has worked for so many beats.
const BEATS_UNTIL_STABLE: u64 = 10;

/// A Redis connection that reconnects in the background.
///
/// - [`current`](Self::current) returns the connection or `None`; it never waits.
/// - A failed call reports the connection with [`report_broken`](Self::report_broken); one background task
///   replaces it, after pauses that grow from 250 ms to one second.
/// - A new connection is published only after AUTH, one call of every script that writes, and one more that
///   was answered within the time budget of a hit.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    task: Background,
}

#[derive(Debug)]
struct Shared {
    place: Place,
    /// The place as it is named in logs and metrics.
    server: String,
    patience: Patience,
    /// The reserved key that a connection is tried on.
    probe: String,
    slot: watch::Sender<Option<Arc<Connected>>>,
    log: Arc<OutageLog>,
}

/// A connection to a server that decides.
#[derive(Debug)]
pub(super) struct Connected {
    connections: Vec<MultiplexedConnection>,
    turn: AtomicUsize,
    pub(super) clock: ServerClock,
    breaker: Breaker,
    pub(super) batcher: Batcher,
    /// Counts answers, so that a heartbeat can tell whether there were any.
    answers: AtomicUsize,
    /// Calls that were slower than the time budget and are not in the log yet.
    slow_calls: AtomicU64,
    /// Why it is of no use any more.
    fault: OnceLock<String>,
}

impl Connected {
    fn new(tried: Tried, most_calls: usize) -> Connected {
        Connected {
            connections: tried.connections,
            turn: AtomicUsize::new(0),
            clock: tried.clock,
            breaker: Breaker::default(),
            batcher: Batcher::new(most_calls),
            answers: AtomicUsize::new(0),
            slow_calls: AtomicU64::new(0),
            fault: OnceLock::new(),
        }
    }

    /// One of the connections, in turn.
    pub(super) fn connection(&self) -> MultiplexedConnection {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.connections[turn % self.connections.len()].clone()
    }

    pub(super) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.breaker.answered();
    }
}

impl Link {
    pub(super) fn new(
        place: Place,
        patience: Patience,
        probe: String,
        log: Arc<OutageLog>,
    ) -> Link {
        let shared = Shared {
            server: place.to_string(),
            place,
            patience,
            probe,
            slot: watch::Sender::new(None),
            log,
        };
        Link {
            shared: Arc::new(shared),
            task: Background::default(),
        }
    }

    /// The connection, if there is one now.
    pub(super) fn current(&self) -> Option<Arc<Connected>> {
        self.ensure_running();
        self.shared.slot.borrow().clone()
    }

    /// Waits until there is a connection.
    pub(super) async fn connected(&self) {
        self.ensure_running();
        let mut slot = self.shared.slot.subscribe();
        // The sender lives in `self`, so the wait ends only with a connection.
        let _ = slot.wait_for(Option::is_some).await;
    }

    /// Takes a broken connection out of the slot, unless another has replaced it already.
    pub(super) fn report_broken(&self, connected: &Arc<Connected>, fault: String) {
        self.shared.report_broken(connected, fault);
    }

    /// Counts a call that was not answered in time; true when it was one too many, and the connection is
    /// taken out of the slot.
    pub(super) fn timed_out(&self, connected: &Arc<Connected>) -> bool {
        self.shared.timed_out(connected)
    }

    pub(super) fn log(&self) -> &OutageLog {
        &self.shared.log
    }

    /// Starts the task that connects, unless it runs already.
    fn ensure_running(&self) {
        self.task.ensure_running(|| {
            self.shared.slot.send_replace(None);
            Arc::clone(&self.shared).run()
        });
    }
}

impl Shared {
    fn report_broken(&self, connected: &Arc<Connected>, fault: String) {
        let _ = connected.fault.set(fault);
        self.slot.send_if_modified(|slot| {
            let same = holds(slot.as_ref(), connected);
            if same {
                *slot = None;
            }
            same
        });
    }

    fn timed_out(&self, connected: &Arc<Connected>) -> bool {
        meter::slow_call(&self.server, self.patience.time_budget);
        connected.slow_calls.fetch_add(1, Ordering::Relaxed);
        let is_one_too_many = connected.breaker.timed_out();
        if is_one_too_many {
            let timeout = self.patience.time_budget.as_millis();
            let fault = format!("{MOST_TIMEOUTS} calls in a row were slower than {timeout} ms");
            self.report_broken(connected, fault);
        }
        is_one_too_many
    }

    async fn run(self: Arc<Shared>) {
        let server = &self.server;
        meter::no_slow_call_yet(server);
        let mut pace = Pace::new();
        let mut is_first = true;
        loop {
            tokio::time::sleep(pace.next_attempt(Instant::now())).await;
            meter::connecting(server);
            match self.place.connect(&self.patience, &self.probe).await {
                Ok(tried) => {
                    self.serve(tried, is_first).await;
                    is_first = false;
                    pace.succeeded();
                }
                Err(useless) => {
                    if let Useless::Slow { timeout } = useless {
                        meter::slow_call(server, timeout);
                    }
                    meter::store_up(server, false);
                    self.log.log_unreachable(server, &useless);
                }
            }
        }
    }

    /// Lends the connection out until it breaks.
    async fn serve(&self, tried: Tried, is_first: bool) {
        let server = &self.server;
        let about = tried.about.clone();
        let version = about.version.as_deref().unwrap_or("unknown");
        meter::server_version(version);
        if is_first {
            tracing::info!(server, version, "connected to Redis");
        }
        if let Some(rule) = &about.eviction {
            self.log.log_eviction(server, rule);
        }
        let connected = Arc::new(Connected::new(tried, self.patience.calls_at_once));
        self.slot.send_replace(Some(Arc::clone(&connected)));
        meter::store_up(server, true);
        let announced = (!is_first).then_some(version);
        self.until_it_breaks(about.eviction.is_some(), announced, &connected)
            .await;
        self.slot.send_replace(None);
        meter::store_up(server, false);
        let fault = connected.fault.get().map_or("", String::as_str);
        self.log.log_lost(server, fault);
    }

    /// Waits for a caller to report a fault, and tries a connection that nobody got an answer from.
    async fn until_it_breaks(
        &self,
        evicts: bool,
        announced: Option<&str>,
        connected: &Arc<Connected>,
    ) {
        let server = &self.server;
        let mut slot = self.slot.subscribe();
        let mut seen = 0;
        for beat in 0_u64.. {
            if let Some(version) = announced.filter(|_| beat == BEATS_UNTIL_STABLE) {
                self.log.log_reconnected(server, version);
            }
            if evicts && beat.is_multiple_of(BEATS_PER_LOOK) {
                self.look_at_evictions(connected).await;
            }
            let taken_out = slot.wait_for(|slot| !holds(slot.as_ref(), connected));
            if tokio::time::timeout(HEARTBEAT, taken_out).await.is_ok() {
                return;
            }
            let slow_calls = connected.slow_calls.swap(0, Ordering::Relaxed);
            if slow_calls > 0 {
                let timeout = self.patience.time_budget;
                self.log.log_slow(server, slow_calls, timeout);
            }
            let answers = connected.answers.load(Ordering::Relaxed);
            if answers != seen {
                seen = answers;
                continue;
            }
            if let Err(fault) = self.try_idle(connected).await {
                let _ = connected.fault.set(fault);
                return;
            }
        }
    }

    /// Tries a connection that nobody got an answer from since the last beat.
    async fn try_idle(&self, connected: &Arc<Connected>) -> Result<(), String> {
        let started = Instant::now();
        let mut connection = connected.connection();
        let trying = try_script(&mut connection, &self.probe, &connected.clock);
        match tokio::time::timeout(self.patience.connect_timeout, trying).await {
            Ok(Ok(())) if started.elapsed() > self.patience.time_budget => {
                self.timed_out(connected);
                Ok(())
            }
            Ok(Ok(())) => {
                connected.breaker.answered();
                Ok(())
            }
            Ok(Err(useless)) => Err(useless.to_string()),
            Err(_) => {
                let timeout = self.patience.connect_timeout.as_millis();
                Err(format!(
                    "an idle connection was not answered within {timeout} ms"
                ))
            }
        }
    }

    async fn look_at_evictions(&self, connected: &Connected) {
        let mut connection = connected.connection();
        let asked = About::ask(&mut connection);
        if let Ok(Ok(about)) = tokio::time::timeout(self.patience.connect_timeout, asked).await {
            meter::evicted(&self.server, about.evicted);
        }
    }
}

fn holds(slot: Option<&Arc<Connected>>, connected: &Arc<Connected>) -> bool {
    slot.is_some_and(|held| Arc::ptr_eq(held, connected))
}
