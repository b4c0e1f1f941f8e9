//! A cluster: which node serves which slot, and a link to each.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{ConnectionAddr, ConnectionInfo, RedisResult, Value};
use tokio::sync::{Notify, watch};

use crate::store::redis::{
    config::Timeouts,
    connection::{
        ManagedConnection,
        backoff::Backoff,
        handshake::{Endpoint, open},
        outage_log::OutageLog,
        task::RespawningTask,
    },
    hash_slot::{HASH_SLOTS, hash_slot},
    keyspace::KeySpace,
    url::with_address,
};

/// How often the map is asked for while all is well, and while a node is missing.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The links to all nodes that serve slots.
#[derive(Debug)]
pub(in crate::store::redis) struct Cluster {
    shared: Arc<ClusterInner>,
    task: RespawningTask,
}

#[derive(Debug)]
struct ClusterInner {
    seeds: Vec<ConnectionInfo>,
    timeouts: Timeouts,
    keys: KeySpace,
    map: watch::Sender<Arc<SlotMap>>,
    stale: Notify,
    log: Arc<OutageLog>,
}

/// Which node serves which slot.
#[derive(Debug, Default)]
struct SlotMap {
    nodes: Vec<ClusterNode>,
    /// The place in `nodes` of each slot's owner.
    owners: Vec<Option<u16>>,
}

#[derive(Clone, Debug)]
struct ClusterNode {
    address: String,
    connection: Arc<ManagedConnection>,
}

/// Some slots, and who serves them; none for a master that is still to get some.
#[derive(Debug, PartialEq, Eq)]
struct SlotRange {
    slots: Option<(u16, u16)>,
    host: String,
    port: u16,
}

impl SlotRange {
    fn contains(&self, slot: u16) -> bool {
        self.slots
            .is_some_and(|(first, last)| (first..=last).contains(&slot))
    }
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
            stale: Notify::new(),
            log: Arc::default(),
        };
        Cluster {
            shared: Arc::new(shared),
            task: RespawningTask::default(),
        }
    }

    /// The link to the node that serves a key.
    pub(in crate::store::redis) fn connection_for(
        &self,
        key: &str,
    ) -> Option<Arc<ManagedConnection>> {
        self.ensure_running();
        let map = self.shared.map.borrow();
        let owner = (*map.owners.get(usize::from(hash_slot(key)))?)?;
        let node = map.nodes.get(usize::from(owner))?;
        Some(Arc::clone(&node.connection))
    }

    /// The link to the node at an address, as a redirection names it.
    pub(in crate::store::redis) fn connection_at(
        &self,
        address: &str,
    ) -> Option<Arc<ManagedConnection>> {
        let map = self.shared.map.borrow();
        let node = map.nodes.iter().find(|node| node.address == address)?;
        Some(Arc::clone(&node.connection))
    }

    /// Any link that is connected.
    pub(in crate::store::redis) fn any_connection(&self) -> Option<Arc<ManagedConnection>> {
        let map = self.shared.map.borrow();
        let mut links = map.nodes.iter().map(|node| &node.connection);
        links
            .find(|connection| connection.current().is_some())
            .cloned()
    }

    pub(in crate::store::redis) fn log(&self) -> &OutageLog {
        &self.shared.log
    }

    /// Asks for a new map, because a node said that the old one is wrong.
    pub(in crate::store::redis) fn refresh_topology(&self) {
        self.shared.stale.notify_one();
    }

    /// Waits until every slot is served by a connected node.
    pub(in crate::store::redis) async fn wait_connected(&self) {
        self.ensure_running();
        let mut map = self.shared.map.subscribe();
        let complete = |map: &Arc<SlotMap>| !map.owners.is_empty();
        let Ok(nodes) = map.wait_for(complete).await.map(|map| map.nodes.clone()) else {
            return;
        };
        for node in nodes {
            node.connection.wait_connected().await;
        }
    }

    fn ensure_running(&self) {
        self.task
            .ensure_running(|| Arc::clone(&self.shared).refresh_loop());
    }
}

impl ClusterInner {
    async fn refresh_loop(self: Arc<ClusterInner>) {
        let mut pace = Backoff::new();
        loop {
            tokio::time::sleep(pace.next_delay(Instant::now())).await;
            let pause = if let Some(ranges) = self.fetch_topology().await {
                pace.reset();
                self.apply_topology(&ranges)
            } else {
                self.log.log_no_topology();
                RETRY_INTERVAL
            };
            let _ = tokio::time::timeout(pause, self.stale.notified()).await;
        }
    }

    /// What the first node that answers says.
    async fn fetch_topology(&self) -> Option<Vec<SlotRange>> {
        let known: Vec<ClusterNode> = self.map.borrow().nodes.clone();
        for node in &known {
            if let Some(connected) = node.connection.current() {
                let params = request_topology(connected.connection());
                let ranges = self.with_timeout(params).await;
                if ranges.is_some() {
                    return ranges;
                }
            }
        }
        for seed in &self.seeds {
            let params =
                async { request_topology(open(seed.clone(), &self.timeouts).await?).await };
            if let Some(mut ranges) = self.with_timeout(params).await {
                // A node that does not know its own address leaves it out.
                let nameless = ranges.iter_mut().filter(|range| range.host.is_empty());
                nameless.for_each(|range| range.host = host_of(seed));
                return Some(ranges);
            }
        }
        None
    }

    async fn with_timeout(
        &self,
        params: impl Future<Output = RedisResult<Vec<SlotRange>>>,
    ) -> Option<Vec<SlotRange>> {
        let answer = tokio::time::timeout(self.timeouts.connect_timeout, params).await;
        answer.ok()?.ok().filter(|ranges| !ranges.is_empty())
    }

    /// Publishes a new map, keeping the links that are still needed, and tells when to ask again.
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
        let all_well = map
            .nodes
            .iter()
            .all(|node| node.connection.current().is_some())
            && map.owners.iter().all(Option::is_some);
        self.map.send_replace(Arc::new(map));
        if all_well {
            REFRESH_INTERVAL
        } else {
            RETRY_INTERVAL
        }
    }

    fn connect_node(&self, node: &SlotRange, ranges: &[SlotRange]) -> Arc<ManagedConnection> {
        let served = |slot: u16| {
            let here = |range: &&SlotRange| range.host == node.host && range.port == node.port;
            let mut here = ranges.iter().filter(here);
            here.any(|range| range.contains(slot))
        };
        // A master without slots answers the probe with a redirection, which proves as much.
        let probe = match node.slots {
            Some(_) => self.keys.probe_key(served),
            None => self.keys.probe_key(|_| true),
        };
        let endpoint = Endpoint::Node(with_address(&self.seeds[0], &node.host, node.port));
        Arc::new(ManagedConnection::new(
            endpoint,
            self.timeouts,
            probe,
            Arc::clone(&self.log),
        ))
    }
}

fn host_of(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    }
}

async fn request_topology(
    mut connection: redis::aio::MultiplexedConnection,
) -> RedisResult<Vec<SlotRange>> {
    let mut questions = redis::pipe();
    questions
        .cmd("CLUSTER")
        .arg("SLOTS")
        .cmd("CLUSTER")
        .arg("NODES");
    let (slots, nodes): (Vec<Value>, String) = questions.query_async(&mut connection).await?;
    let mut ranges: Vec<SlotRange> = slots.iter().filter_map(SlotRange::decode).collect();
    // A node that slots are moving to is asked before it serves any.
    ranges.extend(nodes.lines().filter_map(master_without_slots));
    Ok(ranges)
}

/// The master of a line of CLUSTER NODES that has no slots: `id host:port@bus flags master ...`.
fn master_without_slots(line: &str) -> Option<SlotRange> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[_, address, flags, _, _, _, _, "connected"] = words.as_slice() else {
        return None;
    };
    let flags: Vec<&str> = flags.split(',').collect();
    let unfit = ["slave", "fail", "fail?", "handshake", "noaddr"];
    if !flags.contains(&"master") || unfit.iter().any(|flag| flags.contains(flag)) {
        return None;
    }
    let (host, port) = address.split('@').next()?.rsplit_once(':')?;
    Some(SlotRange {
        slots: None,
        host: host.to_owned(),
        port: port.parse().ok()?,
    })
}

impl SlotRange {
    fn decode(row: &Value) -> Option<SlotRange> {
        let Value::Array(row) = row else { return None };
        let [
            Value::Int(first),
            Value::Int(last),
            Value::Array(master),
            ..,
        ] = row.as_slice()
        else {
            return None;
        };
        let [host, Value::Int(port), ..] = master.as_slice() else {
            return None;
        };
        Some(SlotRange {
            slots: Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?)),
            host: match host {
                Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
                Value::SimpleString(host) => host.clone(),
                Value::Nil => String::new(),
                _ => return None,
            },
            port: u16::try_from(*port).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_without_slots_is_known_and_others_are_not_taken_for_one() {
        let idle = "07c3 127.0.0.1:7006@17006 master - 0 1426238317239 4 connected";
        let found = master_without_slots(idle).unwrap();
        assert_eq!(
            (found.host.as_str(), found.port, found.slots),
            ("127.0.0.1", 7006, None)
        );

        for line in [
            "67ed 127.0.0.1:7002@17002 master - 0 1426238316232 2 connected 5461-10922",
            "6ec2 127.0.0.1:7003@17003 slave 67ed 0 1426238318243 3 connected",
            "824f 127.0.0.1:7004@17004 master,fail - 0 1426238317741 5 disconnected",
            "",
        ] {
            assert_eq!(master_without_slots(line), None, "{line}");
        }
    }
}
