//! Three masters, alone or each with a replica.

use std::{fmt::Display, net::TcpListener};

use tokio::task::block_in_place;

use super::{
    fixture::eventually,
    proxy::Proxy,
    serial::{SerialGuard, serial},
};
use crate::{ports::free_port, redis::RedisProcess};

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;
/// Where the bus of a node is that has no setting for it, and the last port that is used for one.
const BUS_DISTANCE: u16 = 10_000;
const LAST_BUS: u16 = 32_000;

/// A cluster; its nodes end when this is dropped.
#[derive(Debug)]
pub struct TestCluster {
    /// The nodes: masters first, then their replicas in the same order.
    pub nodes: Vec<RedisProcess>,
    /// What clients are led through, one in front of each node, where there is any.
    pub proxies: Vec<Proxy>,
    _serial: SerialGuard,
}

impl TestCluster {
    /// Starts six nodes, joins them, and waits until every replica follows its master.
    ///
    /// # Panics
    ///
    /// When they do not start.
    pub async fn start() -> TestCluster {
        let mut cluster = TestCluster {
            nodes: Vec::new(),
            proxies: Vec::new(),
            _serial: serial().await,
        };
        block_in_place(|| cluster.nodes = (0..2 * MASTERS).map(|_| start_node(&[])).collect());
        cluster.joined().await;
        cluster
    }

    /// Starts three masters without replicas, which is faster.
    ///
    /// # Panics
    ///
    /// When they do not start.
    pub async fn start_masters() -> TestCluster {
        let mut cluster = TestCluster {
            nodes: Vec::new(),
            proxies: Vec::new(),
            _serial: serial().await,
        };
        block_in_place(|| cluster.nodes = (0..MASTERS).map(|_| start_node(&[])).collect());
        cluster.joined().await;
        cluster
    }

    /// The same with a proxy in front of each master.
    ///
    /// # Panics
    ///
    /// When they do not start.
    pub async fn start_masters_behind_proxies() -> TestCluster {
        TestCluster::behind_proxies(MASTERS).await
    }

    /// Six nodes with a proxy in front of each.
    ///
    /// # Panics
    ///
    /// When they do not start.
    pub async fn start_behind_proxies() -> TestCluster {
        TestCluster::behind_proxies(2 * MASTERS).await
    }

    async fn behind_proxies(nodes: usize) -> TestCluster {
        let mut cluster = TestCluster {
            nodes: Vec::new(),
            proxies: Vec::new(),
            _serial: serial().await,
        };
        for _ in 0..nodes {
            let proxy = Proxy::start(0).await;
            let announced = ["--cluster-announce-port", &proxy.port().to_string()];
            let node = block_in_place(|| start_node(&announced));
            proxy.retarget(node.port());
            cluster.nodes.push(node);
            cluster.proxies.push(proxy);
        }
        cluster.joined().await;
        cluster
    }

    async fn joined(&self) {
        self.join();
        eventually("nodes that know one another", async || {
            let known = format!("cluster_known_nodes:{}", self.nodes.len());
            self.all_say(&["CLUSTER", "INFO"], &known)
        })
        .await;
        self.share_slots();
        eventually("a cluster", async || {
            self.all_say(&["CLUSTER", "INFO"], "cluster_state:ok")
        })
        .await;
        self.replicate().await;
    }

    /// Adds a master that serves nothing yet, and tells its place.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn grow(&mut self) -> usize {
        self.nodes.push(block_in_place(|| start_node(&[])));
        let newcomer = self.nodes.len() - 1;
        self.meet(newcomer);
        eventually("a newcomer that all know", async || {
            let known = format!("cluster_known_nodes:{}", self.nodes.len());
            self.all_say(&["CLUSTER", "INFO"], &known)
                && self.says(newcomer, &["CLUSTER", "INFO"], "cluster_state:ok")
        })
        .await;
        newcomer
    }

    /// Its address.
    pub fn url(&self) -> String {
        let ports: Vec<u16> = if self.proxies.is_empty() {
            self.nodes.iter().map(RedisProcess::port).collect()
        } else {
            self.proxies.iter().map(Proxy::port).collect()
        };
        let hosts: Vec<String> = ports.iter().map(|p| format!("127.0.0.1:{p}")).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// Which of the masters has the slot of `key` at first.
    ///
    /// # Panics
    ///
    /// When the first node does not answer.
    pub fn master_of(&self, key: impl Display) -> usize {
        let key = key.to_string();
        let slot: usize = self.ask(0, &["CLUSTER", "KEYSLOT", &key]);
        (0..MASTERS)
            .find(|master| slots_of(*master).contains(&slot))
            .expect("every slot has a master")
    }

    /// The name of a node in the cluster.
    pub fn id(&self, node: usize) -> String {
        self.ask(node, &["CLUSTER", "MYID"])
    }

    /// Runs one command on one node.
    ///
    /// # Panics
    ///
    /// When the node refuses it.
    pub fn ask<T: redis::FromRedisValue>(&self, node: usize, words: &[&str]) -> T {
        let answer = block_in_place(|| self.nodes[node].command(words));
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn join(&self) {
        for node in 0..self.nodes.len() {
            let epoch = (node + 1).to_string();
            self.ask::<()>(node, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            self.meet(node);
        }
    }

    fn meet(&self, node: usize) {
        let port = self.nodes[node].port();
        let bus: Vec<String> = self.ask(node, &["CONFIG", "GET", "cluster-port"]);
        // Redis before 7 has no such setting.
        let bus = bus.get(1).cloned();
        let bus = bus.unwrap_or_else(|| (port + BUS_DISTANCE).to_string());
        self.ask::<()>(
            0,
            &["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus],
        );
    }

    fn share_slots(&self) {
        for master in 0..MASTERS {
            let slots: Vec<String> = slots_of(master).map(|slot| slot.to_string()).collect();
            let mut words = vec!["CLUSTER", "ADDSLOTS"];
            words.extend(slots.iter().map(String::as_str));
            self.ask::<()>(master, &words);
        }
    }

    async fn replicate(&self) {
        for master in 0..self.nodes.len() - MASTERS {
            let (id, replica) = (self.id(master), master + MASTERS);
            self.ask::<()>(replica, &["CLUSTER", "REPLICATE", &id]);
        }
        for replica in MASTERS..self.nodes.len() {
            eventually("a replica that follows", async || {
                self.says(replica, &["INFO"], "master_link_status:up")
            })
            .await;
        }
        eventually("slots that every node knows", async || {
            self.all_say(&["CLUSTER", "INFO"], "cluster_slots_ok:16384")
        })
        .await;
    }

    fn all_say(&self, words: &[&str], text: &str) -> bool {
        (0..self.nodes.len()).all(|node| self.says(node, words, text))
    }

    /// Whether the answer of a node contains `text`.
    pub fn says(&self, node: usize, words: &[&str], text: &str) -> bool {
        let answer: redis::RedisResult<String> = block_in_place(|| self.nodes[node].command(words));
        answer.is_ok_and(|answer| answer.contains(text))
    }
}

fn start_node(extra: &[&str]) -> RedisProcess {
    let bus = free_port().to_string();
    let mut arguments = vec![
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        "1000",
        // One lost slot must not stop the others.
        "--cluster-require-full-coverage",
        "no",
        "--repl-diskless-sync-delay",
        "0",
    ];
    if RedisProcess::is_before_7() {
        arguments.extend(extra);
        return RedisProcess::start_on(port_with_free_bus(), &arguments);
    }
    arguments.extend(["--cluster-port", &bus]);
    arguments.extend(extra);
    RedisProcess::start(&arguments)
}

/// A port whose bus, in its fixed distance, is no port that a client is given.
fn port_with_free_bus() -> u16 {
    loop {
        let port = free_port();
        let bus = port + BUS_DISTANCE;
        if bus < LAST_BUS && TcpListener::bind(("127.0.0.1", bus)).is_ok() {
            return port;
        }
    }
}

fn slots_of(master: usize) -> std::ops::Range<usize> {
    master * SLOTS / MASTERS..(master + 1) * SLOTS / MASTERS
}
