//! A master, a replica, and three sentinels that watch them.

use tokio::task::block_in_place;

use super::{
    fixture::eventually,
    serial::{SerialGuard, serial},
};
use crate::redis::RedisProcess;

const QUORUM: usize = 2;

/// Servers that fail over; all end when this is dropped.
#[derive(Debug)]
pub struct TestSentinel {
    /// The server that is written to at first.
    pub master: RedisProcess,
    /// The server that follows it.
    pub replica: RedisProcess,
    sentinels: Vec<RedisProcess>,
    _serial: SerialGuard,
}

impl TestSentinel {
    /// Starts all, and waits until they know one another.
    ///
    /// # Panics
    ///
    /// When they do not start.
    pub async fn start() -> TestSentinel {
        let serial = serial().await;
        let trio = block_in_place(|| {
            let master = RedisProcess::start(&["--repl-diskless-sync-delay", "0"]);
            let port = master.port().to_string();
            let replica = RedisProcess::start(&["--replicaof", "127.0.0.1", &port]);
            let sentinels = (0..3)
                .map(|_| RedisProcess::sentinel(master.port(), QUORUM))
                .collect();
            TestSentinel {
                master,
                replica,
                sentinels,
                _serial: serial,
            }
        });
        eventually("sentinels that know one another", async || {
            TestSentinel::info(&trio.replica, "master_link_status:up")
                && trio.sentinels.iter().all(|sentinel| {
                    TestSentinel::info(sentinel, "slaves=1,sentinels=3")
                        && TestSentinel::info(sentinel, "status=ok")
                })
        })
        .await;
        trio
    }

    /// The address of the master, by name.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis+sentinel://{}/mymaster", hosts.join(","))
    }

    /// Asks a sentinel to fail over now.
    ///
    /// # Panics
    ///
    /// When it refuses.
    pub fn fail_over(&self) {
        let words = ["SENTINEL", "FAILOVER", "mymaster"];
        let done: redis::RedisResult<redis::Value> =
            block_in_place(|| self.sentinels[0].command(&words));
        done.expect("a sentinel that can fail over");
    }

    /// Waits until the replica is the master.
    pub async fn failed_over(&self) {
        eventually("a promoted replica", async || {
            TestSentinel::info(&self.replica, "role:master")
        })
        .await;
    }

    /// Whether the replica has all that the master wrote.
    pub fn replica_has_caught_up(&self) -> bool {
        let offset = |server: &RedisProcess, name: &str| -> Option<u64> {
            let info: String = block_in_place(|| server.command(&["INFO"])).ok()?;
            let mut values = info.lines().filter_map(|line| line.strip_prefix(name));
            values.next()?.trim().parse().ok()
        };
        offset(&self.master, "master_repl_offset:").is_some_and(|written| {
            offset(&self.replica, "slave_repl_offset:").is_some_and(|read| read >= written)
        })
    }

    fn info(server: &RedisProcess, text: &str) -> bool {
        let info: redis::RedisResult<String> = block_in_place(|| server.command(&["INFO"]));
        info.is_ok_and(|info| info.contains(text))
    }
}
