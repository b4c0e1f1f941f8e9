//! A Redis Cluster: the slot map, and a connection to each node.
//!
//! One task fetches the slot map. Each node has a task of its own that connects
//! ([`ManagedConnection`]). Both move to another runtime when theirs is not driven.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{ConnectionAddr, ConnectionInfo, RedisResult};
use tokio::sync::{Notify, watch};

use crate::store::redis::{
    config::Timeouts,
    connection::{
        ManagedConnection,
        backoff::Backoff,
        handshake::{Endpoint, open},
        outage_log::OutageLog,
        task::RespawningTask,
        topology::{SlotRange, complete_hosts, request_topology},
    },
    hash_slot::{HASH_SLOTS, hash_slot},
    keyspace::KeySpace,
    url::with_address,
};

/// Pause between fetches of the slot map while every hash slot has a connected node. A redirection
/// or a lost connection ends the pause early.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// The pause while a node or a hash slot is missing. The delay of [`Backoff`] comes on top: at most
/// four fetches in any second, and up to 1.25 s apart while no node answers.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The connections to all masters of a cluster.
///
/// - A background task fetches the slot map from any node that answers, every five seconds, and
///   soon after [`refresh_topology`](Self::refresh_topology).
/// - Connections to nodes that stay in the map are kept. A node that leaves it is dropped with its
///   connection, once no call uses it any more.
/// - The map also names masters without slots, because hash slots may be moving to them.
/// - A node is connected as soon as the map names it.
/// - While no node answers, the last map stays in use.
#[derive(Debug)]
pub(in crate::store::redis) struct Cluster {
    shared: Arc<ClusterInner>,
    task: RespawningTask,
}

#[derive(Debug)]
struct ClusterInner {
    /// The nodes of the URL, at least one. The first one's credentials and TLS settings are used
    /// for all nodes.
    seeds: Vec<ConnectionInfo>,
    timeouts: Timeouts,
    /// Names the probe key of each node.
    keys: KeySpace,
    /// The map in use. Only the background task replaces it; readers hold its lock for one lookup.
    map: watch::Sender<Arc<SlotMap>>,
    /// Whether the first fetch has ended: `map` holds its result, or it failed.
    has_fetched: AtomicBool,
    /// Wakes the background task before its interval ends. A node that loses its connection does so.
    stale: Arc<Notify>,
    /// Shared by the connections to all nodes.
    log: Arc<OutageLog>,
}

/// The node of each hash slot.
#[derive(Debug, Default)]
struct SlotMap {
    /// All masters, each once.
    nodes: Vec<ClusterNode>,
    /// The index in `nodes` of each hash slot's master. Empty before the first fetch.
    owners: Vec<Option<u16>>,
}

#[derive(Clone, Debug)]
struct ClusterNode {
    /// `host:port`, as redirections name it.
    address: String,
    /// Shared with the map before and after this one while the node stays.
    connection: Arc<ManagedConnection>,
}

impl Cluster {
    pub(in crate::store::redis) fn new(
        seeds: Vec<ConnectionInfo>,
        timeouts: Timeouts,
        keys: KeySpace,
    ) -> Cluster {
        let shared = ClusterInner {
            seeds,
            timeouts,
            keys,
            map: watch::Sender::default(),
            has_fetched: AtomicBool::new(false),
            stale: Arc::default(),
            log: Arc::default(),
        };
        Cluster {
            shared: Arc::new(shared),
            task: RespawningTask::default(),
        }
    }

    /// The connection to the node that serves a Redis key. `None` before the first slot map, and
    /// for a hash slot without a master.
    pub(in crate::store::redis) fn connection_for(
        &self,
        key: &str,
    ) -> Option<Arc<ManagedConnection>> {
        self.start();
        let map = self.shared.map.borrow();
        let owner = (*map.owners.get(usize::from(hash_slot(key)))?)?;
        let node = map.nodes.get(usize::from(owner))?;
        Some(Arc::clone(&node.connection))
    }

    /// The connection to the node at `host:port`, as a redirection names it. `None` for a node that
    /// the map does not have yet.
    pub(in crate::store::redis) fn connection_at(
        &self,
        address: &str,
    ) -> Option<Arc<ManagedConnection>> {
        let map = self.shared.map.borrow();
        let node = map.nodes.iter().find(|node| node.address == address)?;
        Some(Arc::clone(&node.connection))
    }

    /// Any connection that is established.
    pub(in crate::store::redis) fn any_connection(&self) -> Option<Arc<ManagedConnection>> {
        let map = self.shared.map.borrow();
        let mut connections = map.nodes.iter().map(|node| &node.connection);
        connections
            .find(|connection| connection.current().is_some())
            .cloned()
    }

    /// The log lines of all nodes.
    pub(in crate::store::redis) fn log(&self) -> &OutageLog {
        &self.shared.log
    }

    /// Has the slot map fetched as soon as the backoff allows. Requests during a fetch lead to one
    /// more fetch.
    pub(in crate::store::redis) fn refresh_topology(&self) {
        self.shared.stale.notify_one();
    }

    /// Whether the first fetch of the slot map has not ended yet, or the first attempt to connect the node of a Redis
    /// key.
    pub(in crate::store::redis) fn is_connecting(&self, key: &str) -> bool {
        match self.connection_for(key) {
            Some(connection) => connection.is_connecting(),
            None => !self.shared.has_fetched.load(Ordering::Acquire),
        }
    }

    /// Waits until the first fetch of the slot map has ended, and then the first attempt to connect the node of a Redis
    /// key.
    pub(in crate::store::redis) async fn first_attempt(&self, key: &str) {
        self.start();
        let mut map = self.shared.map.subscribe();
        let has_fetched = |map: &Arc<SlotMap>| {
            !map.owners.is_empty() || self.shared.has_fetched.load(Ordering::Acquire)
        };
        // The sender lives in `self`, so the wait ends with the fetch.
        let _ = map.wait_for(has_fetched).await;
        if let Some(connection) = self.connection_for(key) {
            connection.first_attempt().await;
        }
    }

    /// Waits for the first slot map, and until all its nodes are connected.
    pub(in crate::store::redis) async fn wait_connected(&self) {
        self.start();
        let mut map = self.shared.map.subscribe();
        let complete = |map: &Arc<SlotMap>| !map.owners.is_empty();
        let Ok(nodes) = map.wait_for(complete).await.map(|map| map.nodes.clone()) else {
            return;
        };
        for node in nodes {
            node.connection.wait_connected().await;
        }
    }

    /// Starts the background task, unless it runs already.
    pub(in crate::store::redis) fn start(&self) {
        self.task
            .ensure_running(|| Arc::clone(&self.shared).refresh_loop());
    }
}

impl ClusterInner {
    /// Fetches the slot map, applies it and pauses, until the task is aborted. A failure is logged.
    async fn refresh_loop(self: Arc<ClusterInner>) {
        let mut backoff = Backoff::new();
        loop {
            backoff.wait().await;
            let pause = if let Some(ranges) = self.fetch_topology().await {
                backoff.reset();
                let pause = self.apply_topology(&ranges);
                self.has_fetched.store(true, Ordering::Release);
                pause
            } else {
                self.has_fetched.store(true, Ordering::Release);
                // Wakes the hits that wait for the first fetch.
                self.map.send_modify(|_| {});
                self.log.log_no_topology();
                RETRY_INTERVAL
            };
            let _ = tokio::time::timeout(pause, self.stale.notified()).await;
        }
    }

    /// The slot map of the first node that answers: known nodes first, then the seeds.
    ///
    /// Known nodes are queried over their connections, seeds over a new one that is closed
    /// afterwards. Each has the connect timeout.
    async fn fetch_topology(&self) -> Option<Vec<SlotRange>> {
        let known: Vec<ClusterNode> = self.map.borrow().nodes.clone();
        for node in &known {
            if let Some(connected) = node.connection.current() {
                let fetch = request_topology(connected.connection());
                if let Some(mut ranges) = self.with_timeout(fetch).await {
                    let host = node.address.rsplit_once(':').map_or("", |(host, _)| host);
                    complete_hosts(&mut ranges, host);
                    return Some(ranges);
                }
            }
        }
        for seed in &self.seeds {
            let fetch = async { request_topology(open(seed.clone(), &self.timeouts).await?).await };
            if let Some(mut ranges) = self.with_timeout(fetch).await {
                complete_hosts(&mut ranges, &host_of(seed));
                return Some(ranges);
            }
        }
        None
    }

    /// The ranges, if they arrive within the connect timeout (250 ms) and are not empty.
    async fn with_timeout(
        &self,
        fetch: impl Future<Output = RedisResult<Vec<SlotRange>>>,
    ) -> Option<Vec<SlotRange>> {
        let ranges = tokio::time::timeout(self.timeouts.connect_timeout, fetch).await;
        ranges.ok()?.ok().filter(|ranges| !ranges.is_empty())
    }

    /// Publishes a new slot map, and returns the pause before the next fetch.
    ///
    /// If two ranges name one hash slot, the last one counts. Hash slots without a range have no
    /// owner, and their hits fail with `Unavailable`.
    fn apply_topology(&self, ranges: &[SlotRange]) -> Duration {
        let old = Arc::clone(&self.map.borrow());
        let mut map = SlotMap {
            nodes: Vec::new(),
            owners: vec![None; usize::from(HASH_SLOTS)],
        };
        for range in ranges {
            let address = format!("{}:{}", range.host, range.port);
            let known = map.nodes.iter().position(|node| node.address == address);
            let index = known.unwrap_or_else(|| {
                let connection = old
                    .nodes
                    .iter()
                    .find(|node| node.address == address)
                    .map_or_else(
                        || self.connect_node(range, ranges),
                        |node| Arc::clone(&node.connection),
                    );
                map.nodes.push(ClusterNode {
                    address,
                    connection,
                });
                map.nodes.len() - 1
            });
            let Some((first, last)) = range.slots else {
                continue;
            };
            for slot in first..=last {
                if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
                    *owner = u16::try_from(index).ok();
                }
            }
        }
        // `current` starts the task of a node, so it is called for every node.
        let connected = map
            .nodes
            .iter()
            .map(|node| node.connection.current().is_some());
        let is_connected = connected.fold(true, |all, one| all & one);
        let all_well = is_connected && map.owners.iter().all(Option::is_some);
        self.map.send_replace(Arc::new(map));
        if all_well {
            REFRESH_INTERVAL
        } else {
            RETRY_INTERVAL
        }
    }

    /// A connection to a node of the map, which is established in the background.
    ///
    /// The hash slots of the node at this moment select its probe key. Later migrations do not
    /// change it: a probe that is redirected passes.
    fn connect_node(&self, node: &SlotRange, ranges: &[SlotRange]) -> Arc<ManagedConnection> {
        let served = |slot: u16| {
            let here = |range: &&SlotRange| range.host == node.host && range.port == node.port;
            let mut here = ranges.iter().filter(here);
            here.any(|range| range.contains(slot))
        };
        // The probe key must be in a hash slot of the node. A master without slots replies with a redirection, which
        // proves that it answers.
        let probe = match node.slots {
            Some(_) => self.keys.probe_key(served),
            None => self.keys.probe_key(|_| true),
        };
        let endpoint = Endpoint::Node(with_address(&self.seeds[0], &node.host, node.port));
        let log = Arc::clone(&self.log);
        let lost = Arc::clone(&self.stale);
        let connection = ManagedConnection::new(endpoint, self.timeouts, probe, log, lost);
        if self.has_fetched.load(Ordering::Acquire) {
            connection.skip_first_attempt();
        }
        Arc::new(connection)
    }
}

/// The host of a seed; empty for a unix socket.
fn host_of(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    }
}
