//! The way to the server that decides a key: a link of our own, or what the application lends.

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
        LiveConnection, ManagedConnection, clock_offset::ClockOffset, cluster::Cluster,
        external::ExternalSender, handshake::Endpoint, outage_log::OutageLog, probe::server_time,
    },
    hash_slot::hash_slot,
    url::Topology,
};

/// The name in metrics of a server that the application is connected to.
const EXISTING: &str = "existing";

/// All the ways that a store has.
#[derive(Debug)]
pub(in crate::store::redis) enum Router {
    Single(Arc<ManagedConnection>),
    Cluster(Cluster),
    External(Arc<ExternalConnection>),
}

/// A connection that is not ours to mend.
#[derive(Debug)]
pub(in crate::store::redis) struct ExternalConnection {
    existing: Box<dyn ExternalSender>,
    is_cluster: bool,
    clock: ClockOffset,
    log: OutageLog,
}

/// The way to one server, for one call.
#[derive(Clone, Debug)]
pub(in crate::store::redis) enum Route {
    Linked {
        connection: Arc<ManagedConnection>,
        connected: Arc<LiveConnection>,
    },
    ExternalSender(Arc<ExternalConnection>),
}

impl Router {
    pub(in crate::store::redis) fn new(config: &RedisConfig) -> Router {
        let timeouts = config.timeouts;
        let connection = |endpoint| {
            let probe = config.keys.probe_key(|_| true);
            Arc::new(ManagedConnection::new(
                endpoint,
                timeouts,
                probe,
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

    pub(in crate::store::redis) fn external(existing: impl ExternalSender) -> Router {
        Router::External(Arc::new(ExternalConnection {
            is_cluster: existing.is_cluster(),
            existing: Box::new(existing),
            clock: ClockOffset::new(),
            log: OutageLog::default(),
        }))
    }

    /// The way to a key, if there is one now.
    pub(in crate::store::redis) fn route(&self, key: &str) -> Option<Route> {
        match self {
            Router::Single(connection) => route_over(Arc::clone(connection)),
            Router::Cluster(cluster) => route_over(cluster.connection_for(key)?),
            Router::External(borrowed) => Some(Route::ExternalSender(Arc::clone(borrowed))),
        }
    }

    /// Whether one call can read all these keys.
    pub(in crate::store::redis) fn same_node(&self, names: &[String]) -> bool {
        let spreads = match self {
            Router::Single(_) => false,
            Router::Cluster(_) => true,
            Router::External(borrowed) => borrowed.is_cluster,
        };
        let [first, others @ ..] = names else {
            return true;
        };
        !spreads
            || others
                .iter()
                .all(|name| hash_slot(name) == hash_slot(first))
    }

    /// The slot of a key, where keys of different slots cannot share a call.
    pub(in crate::store::redis) fn slot_for_batching(&self, name: &str) -> Option<u16> {
        matches!(self, Router::Cluster(_)).then(|| hash_slot(name))
    }

    /// The way to where a node of a cluster sent us.
    pub(in crate::store::redis) fn route_to_address(&self, address: &str) -> Option<Route> {
        match self {
            Router::Cluster(cluster) => route_over(cluster.connection_at(address)?),
            Router::Single(_) | Router::External(_) => None,
        }
    }

    pub(in crate::store::redis) fn refresh_topology(&self) {
        if let Router::Cluster(cluster) = self {
            cluster.refresh_topology();
        }
    }

    /// Counts a call that was not answered in time, for which the caller waited `elapsed`.
    ///
    /// Redis may have executed it or not, which the metric for ambiguous calls counts.
    pub(in crate::store::redis) fn record_timeout(&self, route: &Route, elapsed: Duration) {
        metrics::ambiguous();
        if route.record_timeout(elapsed) {
            self.refresh_topology();
        }
    }

    /// The runtime that a connection lives on.
    pub(in crate::store::redis) fn runtime(&self) -> Option<Handle> {
        let connection = match self {
            Router::Single(connection) => Some(Arc::clone(connection)),
            Router::Cluster(cluster) => cluster.any_connection(),
            Router::External(_) => None,
        };
        let connected = connection?.current()?;
        Some(connected.runtime.clone())
    }

    pub(in crate::store::redis) fn log(&self) -> &OutageLog {
        match self {
            Router::Single(connection) => connection.log(),
            Router::Cluster(cluster) => cluster.log(),
            Router::External(borrowed) => &borrowed.log,
        }
    }

    pub(in crate::store::redis) async fn wait_connected(&self) {
        match self {
            Router::Single(connection) => connection.wait_connected().await,
            Router::Cluster(cluster) => cluster.wait_connected().await,
            Router::External(_) => {}
        }
    }
}

fn route_over(connection: Arc<ManagedConnection>) -> Option<Route> {
    let connected = connection.current()?;
    Some(Route::Linked {
        connection,
        connected,
    })
}

impl Route {
    pub(in crate::store::redis) async fn send(&self, cmd: Cmd) -> RedisResult<Value> {
        match self {
            Route::Linked { connected, .. } => {
                let mut connection = connected.connection();
                connection.send_packed_command(&cmd).await?.extract_error()
            }
            Route::ExternalSender(borrowed) => borrowed.existing.send(cmd).await?.extract_error(),
        }
    }

    /// The same for a key that is on its way here.
    pub(in crate::store::redis) async fn send_asking(&self, cmd: Cmd) -> RedisResult<Value> {
        let Route::Linked { connected, .. } = self else {
            return Err((
                ErrorKind::Client,
                "a lent connection follows redirections itself",
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

    pub(in crate::store::redis) fn clock(&self) -> &ClockOffset {
        match self {
            Route::Linked { connected, .. } => &connected.clock,
            Route::ExternalSender(borrowed) => &borrowed.clock,
        }
    }

    pub(in crate::store::redis) fn record_reply(&self) {
        if let Route::Linked { connected, .. } = self {
            connected.record_reply();
        }
    }

    /// Counts a call that the server did not answer in time, for which it was waited so long; true when that was
    /// one too many, and the server is not asked any more.
    fn record_timeout(&self, elapsed: Duration) -> bool {
        match self {
            Route::Linked {
                connection,
                connected,
            } => connection.record_timeout(connected, elapsed),
            Route::ExternalSender(_) => {
                metrics::slow_call(EXISTING, elapsed);
                false
            }
        }
    }

    pub(in crate::store::redis) fn mark_broken(&self, fault: String) {
        if let Route::Linked {
            connection,
            connected,
        } = self
        {
            connection.mark_broken(connected, fault);
        }
    }

    pub(in crate::store::redis) fn log(&self) -> &OutageLog {
        match self {
            Route::Linked { connection, .. } => connection.log(),
            Route::ExternalSender(borrowed) => &borrowed.log,
        }
    }

    /// Makes sure that the server's clock is known, so that a call can carry a deadline.
    ///
    /// Connections of our own have learned it when they were tried.
    pub(in crate::store::redis) async fn fetch_time(&self) {
        if let Route::ExternalSender(borrowed) = self
            && borrowed.clock.server_time(Instant::now()).is_none()
        {
            let sent = Instant::now();
            let reply = borrowed.existing.send(redis::cmd("TIME")).await;
            if let Some(now) = reply.ok().as_ref().and_then(server_time) {
                borrowed.clock.record(now, sent, Instant::now());
            }
        }
    }

    /// The runtime that the connection lives on, where it is ours.
    pub(in crate::store::redis) fn runtime(&self) -> Option<&Handle> {
        match self {
            Route::Linked { connected, .. } => Some(&connected.runtime),
            Route::ExternalSender(_) => None,
        }
    }
}
