//! The way to the server that decides a key: a link of our own, or what the application lends.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{Cmd, ErrorKind, RedisResult, Value};
use tokio::runtime::Handle;

use super::{
    batcher::Batcher,
    cluster::Cluster,
    config::RedisConfig,
    connect::Place,
    existing::Existing,
    link::{Connected, Link},
    outage_log::OutageLog,
    probe::server_time,
    server_clock::ServerClock,
    slot::slot,
    target::Target,
};
use crate::meter;

/// The name in metrics of a server that the application is connected to.
const EXISTING: &str = "existing";

/// All the ways that a store has.
#[derive(Debug)]
pub(super) enum Access {
    One(Arc<Link>),
    Cluster(Cluster),
    Existing(Arc<Borrowed>),
}

/// A connection that is not ours to mend.
#[derive(Debug)]
pub(super) struct Borrowed {
    existing: Box<dyn Existing>,
    is_cluster: bool,
    clock: ServerClock,
    log: OutageLog,
}

/// The way to one server, for one call.
#[derive(Clone, Debug)]
pub(super) enum Way {
    Linked {
        link: Arc<Link>,
        connected: Arc<Connected>,
    },
    Existing(Arc<Borrowed>),
}

impl Access {
    pub(super) fn new(config: &RedisConfig) -> Access {
        let patience = config.patience;
        let link = |place| {
            let probe = config.keys.probe(|_| true);
            Arc::new(Link::new(place, patience, probe, Arc::default()))
        };
        match config.target.clone() {
            Target::Node(info) => Access::One(link(Place::Node(info))),
            Target::Sentinel {
                sentinels,
                service,
                master,
            } => {
                let place = Place::Master {
                    sentinels,
                    service,
                    master,
                };
                Access::One(link(place))
            }
            Target::Cluster { seeds } => {
                Access::Cluster(Cluster::new(seeds, patience, config.keys.clone()))
            }
        }
    }

    pub(super) fn existing(existing: impl Existing) -> Access {
        Access::Existing(Arc::new(Borrowed {
            is_cluster: existing.is_cluster(),
            existing: Box::new(existing),
            clock: ServerClock::new(),
            log: OutageLog::default(),
        }))
    }

    /// The way to a key, if there is one now.
    pub(super) fn way_to(&self, key: &str) -> Option<Way> {
        match self {
            Access::One(link) => way_over(Arc::clone(link)),
            Access::Cluster(cluster) => way_over(cluster.link_of(key)?),
            Access::Existing(borrowed) => Some(Way::Existing(Arc::clone(borrowed))),
        }
    }

    /// Whether one call can read all these keys.
    pub(super) fn is_one_call(&self, names: &[String]) -> bool {
        let spreads = match self {
            Access::One(_) => false,
            Access::Cluster(_) => true,
            Access::Existing(borrowed) => borrowed.is_cluster,
        };
        let [first, others @ ..] = names else {
            return true;
        };
        !spreads || others.iter().all(|name| slot(name) == slot(first))
    }

    /// The slot of a key, where keys of different slots cannot share a call.
    pub(super) fn slot_of(&self, name: &str) -> Option<u16> {
        matches!(self, Access::Cluster(_)).then(|| slot(name))
    }

    /// The way to where a node of a cluster sent us.
    pub(super) fn way_at(&self, address: &str) -> Option<Way> {
        match self {
            Access::Cluster(cluster) => way_over(cluster.link_at(address)?),
            Access::One(_) | Access::Existing(_) => None,
        }
    }

    pub(super) fn map_is_stale(&self) {
        if let Access::Cluster(cluster) = self {
            cluster.map_is_stale();
        }
    }

    /// The runtime that a connection lives on.
    pub(super) fn runtime(&self) -> Option<Handle> {
        let link = match self {
            Access::One(link) => Some(Arc::clone(link)),
            Access::Cluster(cluster) => cluster.any_link(),
            Access::Existing(_) => None,
        };
        let connected = link?.current()?;
        Some(connected.batcher.runtime().clone())
    }

    pub(super) async fn connected(&self) {
        match self {
            Access::One(link) => link.connected().await,
            Access::Cluster(cluster) => cluster.connected().await,
            Access::Existing(_) => {}
        }
    }
}

fn way_over(link: Arc<Link>) -> Option<Way> {
    let connected = link.current()?;
    Some(Way::Linked { link, connected })
}

impl Way {
    pub(super) async fn call(&self, cmd: Cmd) -> RedisResult<Value> {
        match self {
            Way::Linked { connected, .. } => {
                let mut connection = connected.connection();
                connection.send_packed_command(&cmd).await?.extract_error()
            }
            Way::Existing(borrowed) => borrowed.existing.call(cmd).await?.extract_error(),
        }
    }

    /// The same for a key that is on its way here.
    pub(super) async fn call_asking(&self, cmd: Cmd) -> RedisResult<Value> {
        let Way::Linked { connected, .. } = self else {
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

    /// What lets hits share calls, on links of our own.
    pub(super) fn batcher(&self) -> Option<&Batcher> {
        match self {
            Way::Linked { connected, .. } => Some(&connected.batcher),
            Way::Existing(_) => None,
        }
    }

    pub(super) fn clock(&self) -> &ServerClock {
        match self {
            Way::Linked { connected, .. } => &connected.clock,
            Way::Existing(borrowed) => &borrowed.clock,
        }
    }

    pub(super) fn answered(&self) {
        if let Way::Linked { connected, .. } = self {
            connected.answered();
        }
    }

    /// Counts a call that the server did not answer within `timeout`; true when that was one too many, and the
    /// server is not asked any more.
    pub(super) fn timed_out(&self, timeout: Duration) -> bool {
        match self {
            Way::Linked { link, connected } => link.timed_out(connected),
            Way::Existing(_) => {
                meter::slow_call(EXISTING, timeout);
                false
            }
        }
    }

    pub(super) fn broken(&self, fault: String) {
        if let Way::Linked { link, connected } = self {
            link.report_broken(connected, fault);
        }
    }

    pub(super) fn log(&self) -> &OutageLog {
        match self {
            Way::Linked { link, .. } => link.log(),
            Way::Existing(borrowed) => &borrowed.log,
        }
    }

    /// Makes sure that the server's clock is known, so that a call can carry a deadline.
    ///
    /// Connections of our own have learned it when they were tried.
    pub(super) async fn learn_time(&self) {
        if let Way::Existing(borrowed) = self
            && borrowed.clock.at(Instant::now()).is_none()
        {
            let sent = Instant::now();
            let reply = borrowed.existing.call(redis::cmd("TIME")).await;
            if let Some(now) = reply.ok().as_ref().and_then(server_time) {
                borrowed.clock.learn(now, sent, Instant::now());
            }
        }
    }

    /// Runs a task where the connection lives, or here where it is not ours.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self {
            Way::Linked { connected, .. } => connected.batcher.runtime().spawn(task),
            Way::Existing(_) => tokio::spawn(task),
        };
    }
}
