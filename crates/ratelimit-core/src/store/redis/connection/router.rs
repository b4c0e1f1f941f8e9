//! Routing: the connection for a Redis key, in one server, a cluster, or a connection of the
//! application.
//!
//! | | one server, sentinels | cluster | external |
//! |---|---|---|---|
//! | reconnects, heartbeat, circuit breaker | yes | for each node | no |
//! | redirections | fail the call | are followed | are left to the connection |
//! | batches | yes | for each hash slot | no |
//! | deadline in the server's time | from the handshake | from the handshake | after a first TIME |

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{Cmd, ErrorKind, RedisResult, Value};
use tokio::runtime::Handle;

use crate::metrics;
use crate::store::redis::{
    config::RedisConfig,
    connection::{
        ManagedConnection,
        clock_offset::ClockOffset,
        cluster::Cluster,
        external::ExternalSender,
        handshake::Endpoint,
        live::LiveConnection,
        outage_log::OutageLog,
        probe::server_time,
        work_queue::{CallSource, WorkPermit, WorkQueue},
    },
    hash_slot::hash_slot,
    url::Topology,
};

/// The `server` label in metrics of a connection that belongs to the application. Its address is
/// unknown here.
const EXTERNAL_SERVER: &str = "existing";

/// The connections of a store.
///
/// - [`route`](Self::route) returns the connection for a Redis key or `None`; it never waits.
/// - In a cluster the hash slot of the key decides which node serves it. A stale slot map is
///   fetched again after a redirection, a lost connection or a slow node.
/// - Dropping the router aborts the background tasks of its connections. A [`Route`] that is still
///   in use keeps its connection and the task until the call ends.
#[derive(Debug)]
pub(in crate::store::redis) enum Router {
    /// One server, or the master that sentinels name.
    Single(Arc<ManagedConnection>),
    /// All masters of a cluster, with a connection for each.
    Cluster(Cluster),
    /// A connection of the application.
    External(Arc<ExternalConnection>),
}

/// A connection of the application. The store uses it as it is and does not reconnect.
#[derive(Debug)]
pub(in crate::store::redis) struct ExternalConnection {
    /// Sends the commands.
    sender: Box<dyn ExternalSender>,
    /// Whether keys are spread over several nodes, so that a call may use keys of one hash slot
    /// only.
    is_cluster: bool,
    /// The offset of the server's clock, measured before the first call. In a cluster of the
    /// application, samples of all nodes are mixed: the largest one counts.
    clock: ClockOffset,
    /// Bounds the work in flight, except in a cluster of the application.
    work: Arc<WorkQueue>,
    /// The throttled log lines of the store.
    log: OutageLog,
}

/// The connection for one call. A clone refers to the same connection, also after it was replaced.
///
/// A call reports its outcome to the route that it used: [`record_reply`](Self::record_reply),
/// [`Router::record_timeout`] or [`mark_broken`](Self::mark_broken). A report about a replaced
/// connection does not affect its successor.
#[derive(Clone, Debug)]
pub(in crate::store::redis) enum Route {
    /// A connection of our own.
    Linked {
        /// The server, to which faults are reported.
        connection: Arc<ManagedConnection>,
        /// The connection that was current when the route was made.
        connected: Arc<LiveConnection>,
    },
    /// A connection of the application.
    ExternalSender(Arc<ExternalConnection>),
}

impl Router {
    /// Makes the connections of a configuration. [`start`](Self::start) or the first call connects them.
    pub(in crate::store::redis) fn new(config: &RedisConfig) -> Router {
        let timeouts = config.timeouts;
        let connection = |endpoint| {
            let probe = config.keys.probe_key(|_| true);
            Arc::new(ManagedConnection::new(
                endpoint,
                timeouts,
                probe,
                Arc::default(),
                Arc::default(),
            ))
        };
        match config.target.clone() {
            Topology::Single(info) => Router::Single(connection(Endpoint::Node(info))),
            Topology::Sentinel {
                sentinels,
                service,
                master,
            } => {
                let endpoint = Endpoint::Master {
                    sentinels,
                    service,
                    master,
                };
                Router::Single(connection(endpoint))
            }
            Topology::Cluster { seeds } => {
                Router::Cluster(Cluster::new(seeds, timeouts, config.keys.clone()))
            }
        }
    }

    /// A router over a connection of the application.
    pub(in crate::store::redis) fn external(sender: impl ExternalSender) -> Router {
        Router::External(Arc::new(ExternalConnection {
            is_cluster: sender.is_cluster(),
            // The node of a call is not known here.
            work: if sender.is_cluster() {
                WorkQueue::unbounded()
            } else {
                WorkQueue::new(None)
            },
            sender: Box::new(sender),
            clock: ClockOffset::new(),
            log: OutageLog::default(),
        }))
    }

    /// The connection for a Redis key, if there is one now.
    ///
    /// `None` means that the failure mode decides at once. A connection of the application is
    /// always returned, broken or not.
    pub(in crate::store::redis) fn route(&self, key: &str) -> Option<Route> {
        match self {
            Router::Single(connection) => route_over(Arc::clone(connection)),
            Router::Cluster(cluster) => route_over(cluster.connection_for(key)?),
            Router::External(external) => Some(Route::ExternalSender(Arc::clone(external))),
        }
    }

    /// Whether one call can use all these Redis keys: in a cluster they must have one hash slot.
    ///
    /// Two hash slots of one node count as different: Redis refuses such a call.
    pub(in crate::store::redis) fn same_node(&self, names: &[String]) -> bool {
        let spreads = match self {
            // Sentinels lead to one master at a time, so all keys share a node there as well.
            Router::Single(_) => false,
            Router::Cluster(_) => true,
            Router::External(external) => external.is_cluster,
        };
        let [first, others @ ..] = names else {
            return true;
        };
        !spreads
            || others
                .iter()
                .all(|name| hash_slot(name) == hash_slot(first))
    }

    /// The hash slot of a Redis key, where hits of different hash slots cannot share a batch.
    /// `None` on a single server, and for connections of the application, which are not batched.
    pub(in crate::store::redis) fn slot_for_batching(&self, name: &str) -> Option<u16> {
        matches!(self, Router::Cluster(_)).then(|| hash_slot(name))
    }

    /// The connection to the node that a redirection (MOVED, ASK) names. `None` if the node is not in the slot map or not connected, and outside of a cluster.
    pub(in crate::store::redis) fn route_to_address(&self, address: &str) -> Option<Route> {
        match self {
            Router::Cluster(cluster) => route_over(cluster.connection_at(address)?),
            Router::Single(_) | Router::External(_) => None,
        }
    }

    /// Has the slot map of a cluster fetched again soon. It returns at once and does nothing
    /// elsewhere.
    pub(in crate::store::redis) fn refresh_topology(&self) {
        if let Router::Cluster(cluster) = self {
            cluster.refresh_topology();
        }
    }

    /// Counts a call that was not answered in time, for which the caller waited `elapsed`.
    ///
    /// Five in a row have the node probed. They also have the slot map fetched: a replica may have been promoted in
    /// place of the slow node.
    pub(in crate::store::redis) fn record_timeout(&self, route: &Route, elapsed: Duration) {
        if route.record_timeout(elapsed) {
            self.refresh_topology();
        }
    }

    /// The runtime of any live connection, for background work of a caller without a runtime. It
    /// may not be driven.
    pub(in crate::store::redis) fn runtime(&self) -> Option<Handle> {
        let connection = match self {
            Router::Single(connection) => Some(Arc::clone(connection)),
            Router::Cluster(cluster) => cluster.any_connection(),
            Router::External(_) => None,
        };
        let connected = connection?.current()?;
        Some(connected.runtime.clone())
    }

    /// The log lines of the store.
    pub(in crate::store::redis) fn log(&self) -> &OutageLog {
        match self {
            Router::Single(connection) => connection.log(),
            Router::Cluster(cluster) => cluster.log(),
            Router::External(external) => &external.log,
        }
    }

    /// Starts to connect. It does nothing outside of a runtime.
    pub(in crate::store::redis) fn start(&self) {
        match self {
            Router::Single(connection) => drop(connection.current()),
            Router::Cluster(cluster) => cluster.start(),
            Router::External(_) => {}
        }
    }

    /// Whether callers may wait for the first attempt to connect the servers of these keys. Never outside of a runtime.
    pub(in crate::store::redis) fn is_connecting(&self, names: &[String]) -> bool {
        let is_connecting = match self {
            Router::Single(connection) => connection.is_connecting(),
            Router::Cluster(cluster) => names.iter().any(|name| cluster.is_connecting(name)),
            Router::External(_) => false,
        };
        is_connecting && Handle::try_current().is_ok()
    }

    /// Waits until those attempts have ended, well or badly. The caller sets the time limit.
    pub(in crate::store::redis) async fn first_attempts(&self, names: &[String]) {
        match self {
            Router::Single(connection) => connection.first_attempt().await,
            Router::Cluster(cluster) => {
                for name in names {
                    cluster.first_attempt(name).await;
                }
            }
            Router::External(_) => {}
        }
    }

    /// Waits until all servers are connected. The caller sets the time limit.
    pub(in crate::store::redis) async fn wait_connected(&self) {
        match self {
            Router::Single(connection) => connection.wait_connected().await,
            Router::Cluster(cluster) => cluster.wait_connected().await,
            Router::External(_) => {}
        }
    }
}

/// A route over the present connection of a server, if there is one.
fn route_over(connection: Arc<ManagedConnection>) -> Option<Route> {
    let connected = connection.current()?;
    Some(Route::Linked {
        connection,
        connected,
    })
}

impl Route {
    /// Sends a command and returns the reply.
    ///
    /// Dropping the future does not recall a command that was written to the socket. The script's
    /// own deadline keeps it from running late.
    ///
    /// # Errors
    ///
    /// An error reply, a broken connection, or a reply that cannot be parsed.
    /// [`CallError`](super::error::CallError) classifies them.
    pub(in crate::store::redis) async fn send(&self, cmd: Cmd) -> RedisResult<Value> {
        match self {
            Route::Linked { connected, .. } => {
                let mut connection = connected.connection();
                // The outer error is a broken connection, the inner one an error reply.
                connection.send_packed_command(&cmd).await?.extract_error()
            }
            Route::ExternalSender(external) => external.sender.send(cmd).await?.extract_error(),
        }
    }

    /// Sends a command behind ASKING, for a key whose hash slot is being moved to this node.
    ///
    /// Both are in one pipeline on one socket: ASKING applies to the next command of its connection
    /// only.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send). A connection of the application always fails, and never gets
    /// here: it follows redirections itself.
    pub(in crate::store::redis) async fn send_asking(&self, cmd: Cmd) -> RedisResult<Value> {
        // The router returns no route to an address for a connection of the application.
        let Route::Linked { connected, .. } = self else {
            return Err((
                ErrorKind::Client,
                "a connection of the application follows redirections itself",
            )
                .into());
        };
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").ignore().add_command(cmd);
        let mut connection = connected.connection();
        let (answer,): (Value,) = pipeline.query_async(&mut connection).await?;
        Ok(answer)
    }

    /// The id of a connection of our own. Hits on other connections are not batched.
    pub(in crate::store::redis) fn connection_id(&self) -> Option<u64> {
        match self {
            Route::Linked { connected, .. } => Some(connected.id),
            Route::ExternalSender(_) => None,
        }
    }

    /// Waits until the server may get a call whose work takes it about `work`. The caller sets the time limit.
    pub(in crate::store::redis) async fn acquire_work(
        &self,
        source: &CallSource,
        work: Duration,
        timeout: Duration,
    ) -> WorkPermit {
        let queue = match self {
            Route::Linked { connected, .. } => &connected.work,
            Route::ExternalSender(external) => &external.work,
        };
        let round_trip = self.clock().min_round_trip();
        queue.acquire(source, work, round_trip, timeout).await
    }

    /// The offset of the server's clock, which turns a deadline into the server's time.
    pub(in crate::store::redis) fn clock(&self) -> &ClockOffset {
        match self {
            Route::Linked { connected, .. } => &connected.clock,
            Route::ExternalSender(external) => &external.clock,
        }
    }

    /// Records a reply in time, which resets the circuit breaker and spares the next idle probe.
    pub(in crate::store::redis) fn record_reply(&self) {
        if let Route::Linked { connected, .. } = self {
            connected.record_reply();
        }
    }

    /// Counts a call without a reply in time, after `elapsed`. Returns whether that demanded a probe, which may open the
    /// circuit breaker.
    ///
    /// A connection of the application has no breaker. Its timeouts are counted with
    /// `server="existing"`.
    fn record_timeout(&self, elapsed: Duration) -> bool {
        match self {
            Route::Linked {
                connection,
                connected,
            } => connection.record_timeout(connected, elapsed),
            Route::ExternalSender(_) => {
                metrics::slow_call(EXTERNAL_SERVER, elapsed);
                false
            }
        }
    }

    /// Takes the connection out of use. A connection of the application stays in use.
    ///
    /// `fault` appears as `cause` in the log line of the lost connection, unless another fault was
    /// recorded first.
    pub(in crate::store::redis) fn mark_broken(&self, fault: String) {
        if let Route::Linked {
            connection,
            connected,
        } = self
        {
            connection.mark_broken(connected, fault);
        }
    }

    /// The log lines of the store.
    pub(in crate::store::redis) fn log(&self) -> &OutageLog {
        match self {
            Route::Linked { connection, .. } => connection.log(),
            Route::ExternalSender(external) => &external.log,
        }
    }

    /// Measures the offset of the server's clock, if it is not known yet, so that calls can carry a deadline.
    ///
    /// For connections of the application. The handshake measures it for all others.
    ///
    /// A failure is not reported: the call is then sent without a deadline, and a late execution
    /// can charge it.
    pub(in crate::store::redis) async fn fetch_time(&self) {
        if let Route::ExternalSender(external) = self
            && external.clock.server_time(Instant::now()).is_none()
        {
            // Several first calls may measure at the same time. The best sample counts.
            let sent = Instant::now();
            let reply = external.sender.send(redis::cmd("TIME")).await;
            if let Some(now) = reply.ok().as_ref().and_then(server_time) {
                external.clock.record(now, sent, Instant::now());
            }
        }
    }

    /// The runtime that drives the connection. Unknown for connections of the application.
    pub(in crate::store::redis) fn runtime(&self) -> Option<&Handle> {
        match self {
            Route::Linked { connected, .. } => Some(&connected.runtime),
            Route::ExternalSender(_) => None,
        }
    }
}
