//! A cluster: which node serves which slot, and a link to each.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{ConnectionAddr, ConnectionInfo, RedisResult, Value};
use tokio::sync::{Notify, watch};

use super::{
    config::Patience,
    connect::{Place, open},
    keys::KeySpace,
    link::Link,
    outage_log::OutageLog,
    pace::Pace,
    slot::{SLOTS, slot},
    target::at,
    task::Background,
};

/// How often the map is asked for while all is well, and while a node is missing.
const CALM: Duration = Duration::from_secs(5);
const WORRIED: Duration = Duration::from_millis(250);

/// The links to all nodes that serve slots.
#[derive(Debug)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    task: Background,
}

#[derive(Debug)]
struct Shared {
    seeds: Vec<ConnectionInfo>,
    patience: Patience,
    keys: KeySpace,
    map: watch::Sender<Arc<Map>>,
    stale: Notify,
    log: Arc<OutageLog>,
}

/// Which node serves which slot.
#[derive(Debug, Default)]
struct Map {
    nodes: Vec<Node>,
    /// The place in `nodes` of each slot's owner.
    owners: Vec<Option<u16>>,
}

#[derive(Clone, Debug)]
struct Node {
    address: String,
    link: Arc<Link>,
}

/// Some slots, and who serves them; none for a master that is still to get some.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    slots: Option<(u16, u16)>,
    host: String,
    port: u16,
}

impl Range {
    fn contains(&self, slot: u16) -> bool {
        self.slots
            .is_some_and(|(first, last)| (first..=last).contains(&slot))
    }
}

impl Cluster {
    pub(super) fn new(seeds: Vec<ConnectionInfo>, patience: Patience, keys: KeySpace) -> Cluster {
        let shared = Shared {
            seeds,
            patience,
            keys,
            map: watch::Sender::default(),
            stale: Notify::new(),
            log: Arc::default(),
        };
        Cluster {
            shared: Arc::new(shared),
            task: Background::default(),
        }
    }

    /// The link to the node that serves a key.
    pub(super) fn link_of(&self, key: &str) -> Option<Arc<Link>> {
        self.ensure_running();
        let map = self.shared.map.borrow();
        let owner = (*map.owners.get(usize::from(slot(key)))?)?;
        let node = map.nodes.get(usize::from(owner))?;
        Some(Arc::clone(&node.link))
    }

    /// The link to the node at an address, as a redirection names it.
    pub(super) fn link_at(&self, address: &str) -> Option<Arc<Link>> {
        let map = self.shared.map.borrow();
        let node = map.nodes.iter().find(|node| node.address == address)?;
        Some(Arc::clone(&node.link))
    }

    /// Asks for a new map, because a node said that the old one is wrong.
    /// Any link that is connected.
    pub(super) fn any_link(&self) -> Option<Arc<Link>> {
        let map = self.shared.map.borrow();
        let mut links = map.nodes.iter().map(|node| &node.link);
        links.find(|link| link.current().is_some()).cloned()
    }

    pub(super) fn map_is_stale(&self) {
        self.shared.stale.notify_one();
    }

    /// Waits until every slot is served by a connected node.
    pub(super) async fn connected(&self) {
        self.ensure_running();
        let mut map = self.shared.map.subscribe();
        let complete = |map: &Arc<Map>| !map.owners.is_empty();
        let Ok(nodes) = map.wait_for(complete).await.map(|map| map.nodes.clone()) else {
            return;
        };
        for node in nodes {
            node.link.connected().await;
        }
    }

    fn ensure_running(&self) {
        self.task.ensure_running(|| Arc::clone(&self.shared).run());
    }
}

impl Shared {
    async fn run(self: Arc<Shared>) {
        let mut pace = Pace::new();
        loop {
            tokio::time::sleep(pace.next_attempt(Instant::now())).await;
            let pause = if let Some(ranges) = self.ask_anyone().await {
                pace.succeeded();
                self.draw(&ranges)
            } else {
                self.log.log_no_topology();
                WORRIED
            };
            let _ = tokio::time::timeout(pause, self.stale.notified()).await;
        }
    }

    /// What the first node that answers says.
    async fn ask_anyone(&self) -> Option<Vec<Range>> {
        let known: Vec<Node> = self.map.borrow().nodes.clone();
        for node in &known {
            if let Some(connected) = node.link.current() {
                let asked = ask(connected.connection());
                let ranges = self.in_time(asked).await;
                if ranges.is_some() {
                    return ranges;
                }
            }
        }
        for seed in &self.seeds {
            let asked = async { ask(open(seed.clone(), &self.patience).await?).await };
            if let Some(mut ranges) = self.in_time(asked).await {
                // A node that does not know its own address leaves it out.
                let nameless = ranges.iter_mut().filter(|range| range.host.is_empty());
                nameless.for_each(|range| range.host = host_of(seed));
                return Some(ranges);
            }
        }
        None
    }

    async fn in_time(
        &self,
        asked: impl Future<Output = RedisResult<Vec<Range>>>,
    ) -> Option<Vec<Range>> {
        let answer = tokio::time::timeout(self.patience.connect_timeout, asked).await;
        answer.ok()?.ok().filter(|ranges| !ranges.is_empty())
    }

    /// Publishes a new map, keeping the links that are still needed, and tells when to ask again.
    fn draw(&self, ranges: &[Range]) -> Duration {
        let old = Arc::clone(&self.map.borrow());
        let mut map = Map {
            nodes: Vec::new(),
            owners: vec![None; usize::from(SLOTS)],
        };
        for range in ranges {
            let address = format!("{}:{}", range.host, range.port);
            let known = map.nodes.iter().position(|node| node.address == address);
            let place = known.unwrap_or_else(|| {
                let link = old
                    .nodes
                    .iter()
                    .find(|node| node.address == address)
                    .map_or_else(
                        || self.link_to(range, ranges),
                        |node| Arc::clone(&node.link),
                    );
                map.nodes.push(Node { address, link });
                map.nodes.len() - 1
            });
            let Some((first, last)) = range.slots else {
                continue;
            };
            for slot in first..=last {
                if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
                    *owner = u16::try_from(place).ok();
                }
            }
        }
        let all_well = map.nodes.iter().all(|node| node.link.current().is_some())
            && map.owners.iter().all(Option::is_some);
        self.map.send_replace(Arc::new(map));
        if all_well { CALM } else { WORRIED }
    }

    fn link_to(&self, node: &Range, ranges: &[Range]) -> Arc<Link> {
        let served = |slot: u16| {
            let here = |range: &&Range| range.host == node.host && range.port == node.port;
            let mut here = ranges.iter().filter(here);
            here.any(|range| range.contains(slot))
        };
        // A master without slots answers the probe with a redirection, which proves as much.
        let probe = match node.slots {
            Some(_) => self.keys.probe(served),
            None => self.keys.probe(|_| true),
        };
        let place = Place::Node(at(&self.seeds[0], &node.host, node.port));
        Arc::new(Link::new(
            place,
            self.patience,
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

async fn ask(mut connection: redis::aio::MultiplexedConnection) -> RedisResult<Vec<Range>> {
    let mut questions = redis::pipe();
    questions
        .cmd("CLUSTER")
        .arg("SLOTS")
        .cmd("CLUSTER")
        .arg("NODES");
    let (slots, nodes): (Vec<Value>, String) = questions.query_async(&mut connection).await?;
    let mut ranges: Vec<Range> = slots.iter().filter_map(Range::read).collect();
    // A node that slots are moving to is asked before it serves any.
    ranges.extend(nodes.lines().filter_map(idle_master));
    Ok(ranges)
}

/// The master of a line of CLUSTER NODES that has no slots: `id host:port@bus flags master ...`.
fn idle_master(line: &str) -> Option<Range> {
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
    Some(Range {
        slots: None,
        host: host.to_owned(),
        port: port.parse().ok()?,
    })
}

impl Range {
    fn read(row: &Value) -> Option<Range> {
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
        Some(Range {
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
        let found = idle_master(idle).unwrap();
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
            assert_eq!(idle_master(line), None, "{line}");
        }
    }
}
