//! The connection to one server: there or not there, and one task that sees to it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use super::{
    batcher::Batcher,
    breaker::Breaker,
    config::Patience,
    connect::{About, Place, Tried, try_script},
    pace::{OnceASecond, Pace},
    server_clock::ServerClock,
    task::Background,
};
use crate::meter;

/// How often a connection that nobody uses is tried.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// So many heartbeats lie between two looks at what a server evicted.
const BEATS_PER_LOOK: u64 = 4;

/// A connection that is there or not there; nobody waits for it.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    task: Background,
}

#[derive(Debug)]
struct Shared {
    place: Place,
    patience: Patience,
    /// The reserved key that a connection is tried on.
    probe: String,
    slot: watch::Sender<Option<Arc<Connected>>>,
    complaints: OnceASecond,
}

/// A connection to a server that decides.
#[derive(Debug)]
pub(super) struct Connected {
    connections: Vec<MultiplexedConnection>,
    turn: AtomicUsize,
    pub(super) clock: ServerClock,
    pub(super) breaker: Breaker,
    pub(super) batcher: Batcher,
    /// Counts answers, so that a heartbeat can tell whether there were any.
    answers: AtomicUsize,
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
    pub(super) fn new(place: Place, patience: Patience, probe: String) -> Link {
        let shared = Shared {
            place,
            patience,
            probe,
            slot: watch::Sender::new(None),
            complaints: OnceASecond::default(),
        };
        Link {
            shared: Arc::new(shared),
            task: Background::default(),
        }
    }

    /// The connection, if there is one now.
    pub(super) fn current(&self) -> Option<Arc<Connected>> {
        self.see_to_it();
        self.shared.slot.borrow().clone()
    }

    /// Waits until there is a connection.
    pub(super) async fn connected(&self) {
        self.see_to_it();
        let mut slot = self.shared.slot.subscribe();
        // The sender lives in `self`, so the wait ends only with a connection.
        let _ = slot.wait_for(Option::is_some).await;
    }

    /// Takes a broken connection out of the slot, unless another has replaced it already.
    pub(super) fn report_broken(&self, connected: &Arc<Connected>) {
        self.shared.slot.send_if_modified(|slot| {
            let same = holds(slot.as_ref(), connected);
            if same {
                *slot = None;
            }
            same
        });
    }

    /// Starts the task that connects, unless it runs already.
    fn see_to_it(&self) {
        self.task.see_to(|| {
            self.shared.slot.send_replace(None);
            Arc::clone(&self.shared).run()
        });
    }
}

impl Shared {
    async fn run(self: Arc<Shared>) {
        let server = self.place.to_string();
        let mut pace = Pace::new();
        loop {
            tokio::time::sleep(pace.next_attempt(Instant::now())).await;
            meter::connecting(&server);
            match self.place.connect(&self.patience, &self.probe).await {
                Ok(tried) => {
                    pace.succeeded();
                    self.serve(&server, tried).await;
                }
                Err(useless) => {
                    meter::store_up(&server, false);
                    if self.complaints.may_speak() {
                        tracing::warn!(server, error = %useless, "no connection to Redis");
                    }
                }
            }
        }
    }

    /// Lends the connection out until it breaks.
    async fn serve(&self, server: &str, tried: Tried) {
        welcome(server, &tried.about);
        let evicts = tried.about.eviction.is_some();
        let connected = Arc::new(Connected::new(tried, self.patience.calls_at_once));
        self.slot.send_replace(Some(Arc::clone(&connected)));
        meter::store_up(server, true);
        self.until_it_breaks(server, evicts, &connected).await;
        self.slot.send_replace(None);
        meter::store_up(server, false);
        if self.complaints.may_speak() {
            tracing::warn!(
                server,
                "lost the connection to Redis, the failure mode decides"
            );
        }
    }

    /// Waits for a caller to report a fault, and tries a connection that nobody got an answer from.
    async fn until_it_breaks(&self, server: &str, evicts: bool, connected: &Arc<Connected>) {
        let mut slot = self.slot.subscribe();
        let mut seen = 0;
        for beat in 0_u64.. {
            if evicts && beat.is_multiple_of(BEATS_PER_LOOK) {
                self.look_at_evictions(server, connected).await;
            }
            let taken_out = slot.wait_for(|slot| !holds(slot.as_ref(), connected));
            if tokio::time::timeout(HEARTBEAT, taken_out).await.is_ok() {
                return;
            }
            let answers = connected.answers.load(Ordering::Relaxed);
            if answers != seen {
                seen = answers;
                continue;
            }
            let mut connection = connected.connection();
            let trying = try_script(&mut connection, &self.probe, &connected.clock);
            let alive = tokio::time::timeout(self.patience.connect_timeout, trying).await;
            if !matches!(alive, Ok(Ok(()))) {
                return;
            }
        }
    }

    async fn look_at_evictions(&self, server: &str, connected: &Connected) {
        let mut connection = connected.connection();
        let asked = About::ask(&mut connection);
        if let Ok(Ok(about)) = tokio::time::timeout(self.patience.connect_timeout, asked).await {
            meter::evicted(server, about.evicted);
        }
    }
}

fn holds(slot: Option<&Arc<Connected>>, connected: &Arc<Connected>) -> bool {
    slot.is_some_and(|held| Arc::ptr_eq(held, connected))
}

fn welcome(server: &str, about: &About) {
    let version = about.version.as_deref().unwrap_or("of an unknown version");
    meter::server_version(version);
    tracing::info!(server, version, "connected to Redis");
    if let Some(rule) = &about.eviction {
        tracing::warn!(
            server,
            maxmemory_policy = %rule,
            "Redis may evict rate limits before they expire: set maxmemory-policy to noeviction"
        );
    }
}
