//! Connecting: sockets, AUTH, version, role, and every script that writes.
//!
//! | step | time limit | error |
//! |---|---|---|
//! | address, from the sentinels if there are any | connect timeout for each | `NoMaster` |
//! | sockets with AUTH and SELECT, one after another | connect timeout for each | `Redis` |
//! | INFO and version | connect timeout, together with the next two | `TooOld`, `Redis`, `Silent` |
//! | ROLE, if there are sentinels | | `NoMaster`, `Silent` |
//! | every script that writes | | `Redis`, `Invalid`, `Silent` |
//! | one more script call | timeout of a hit | `Slow`, `Redis`, `Invalid` |
//!
//! The connect timeout is 250 ms by default, the timeout of a hit 100 ms (`RedisConfig`). No check
//! waits for any of this.

use std::{fmt, time::Instant};

use redis::{Client, ConnectionInfo, RedisResult, Value, aio::MultiplexedConnection};

use crate::store::redis::{
    config::{Timeouts, tcp_settings},
    connection::{
        clock_offset::ClockOffset,
        error::{CallError, HandshakeError, MIN_VERSION},
        probe::{probe, run_every_script},
    },
    url::with_address,
};

/// The server that a connection leads to. Each attempt to connect resolves it anew.
#[derive(Clone, Debug)]
pub(in crate::store::redis) enum Endpoint {
    /// A server with a known address.
    Node(ConnectionInfo),
    /// The current master of a service, which sentinels name. After a failover the next attempt
    /// finds the new master.
    Master {
        /// The sentinels with their own credentials, tried in this order.
        sentinels: Vec<ConnectionInfo>,
        /// The name of the master in the configuration of the sentinels.
        service: String,
        /// Credentials, database and TLS settings of the master. Its address is a placeholder.
        master: Box<ConnectionInfo>,
    },
}

/// The name in logs and metrics, without user and password.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Node(info) => info.addr().fmt(f),
            Endpoint::Master { service, .. } => f.write_str(service),
        }
    }
}

/// The result of a handshake: connections that have decided a hit, and facts about their server.
///
/// All sockets were authenticated. The scripts ran over the first one only: access rules belong to
/// the user, not to the socket.
pub(in crate::store::redis) struct Handshake {
    /// The address of the server: that of the master, where sentinels name it.
    pub(in crate::store::redis) address: ConnectionInfo,
    /// At least one socket, driven by the runtime on which the handshake ran.
    pub(in crate::store::redis) connections: Vec<MultiplexedConnection>,
    /// The offset of the server's clock, with one sample.
    pub(in crate::store::redis) clock: ClockOffset,
    /// The reply to INFO.
    pub(in crate::store::redis) about: ServerInfo,
}

/// Facts from INFO. Empty where the access rules of the server forbid INFO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) struct ServerInfo {
    /// `redis_version`. Valkey reports the version of Redis that it is compatible with.
    pub(in crate::store::redis) version: Option<String>,
    /// The `maxmemory-policy`, if the server may evict keys before they expire. `None` for
    /// `noeviction`, and without `maxmemory`.
    pub(in crate::store::redis) eviction: Option<String>,
    /// Keys that were evicted since the server started; 0 if INFO does not have the number.
    pub(in crate::store::redis) evicted: u64,
    /// The part of `maxmemory` that is used, in percent. `None` without a bound.
    pub(in crate::store::redis) memory_percent: Option<u64>,
}

impl Endpoint {
    /// Connects, authenticates, and runs every script that writes on a reserved key.
    ///
    /// One more call must be answered within the timeout of a hit. A slower server would only make
    /// callers wait before the failure mode decides. That call also records the first sample of the
    /// server's clock, which every later deadline needs.
    ///
    /// # Errors
    ///
    /// The connection is dropped and not put to use.
    ///
    /// - [`HandshakeError::NoMaster`]: no sentinel names a master, or the named server is a
    ///   replica.
    /// - [`HandshakeError::Redis`]: the server cannot be reached, refuses the credentials, or
    ///   refuses a script.
    /// - [`HandshakeError::TooOld`]: the server is older than Redis 6.2.
    /// - [`HandshakeError::Invalid`]: a script replied with something else than its format.
    /// - [`HandshakeError::Silent`]: INFO, ROLE and the scripts took longer than the connect
    ///   timeout.
    /// - [`HandshakeError::Slow`]: the last call took longer than the timeout of a hit.
    pub(in crate::store::redis) async fn connect(
        &self,
        timeouts: &Timeouts,
        probe_key: &str,
    ) -> Result<Handshake, HandshakeError> {
        let info = self.address(timeouts).await?;
        let mut connections = Vec::new();
        for _ in 0..timeouts.connections {
            connections.push(open(info.clone(), timeouts).await?);
        }
        let first = &mut connections[0];
        let clock = ClockOffset::new();
        let handshake = async {
            let about = ServerInfo::fetch(first).await?;
            about.check()?;
            self.check_role(first).await?;
            run_every_script(first, probe_key).await?;
            Ok::<ServerInfo, HandshakeError>(about)
        };
        let timeout = timeouts.connect_timeout;
        let about = tokio::time::timeout(timeout, handshake)
            .await
            .map_err(|_| HandshakeError::Silent { timeout })??;
        // The calls before this one compiled its script, so this one has the speed of a hit.
        let timeout = timeouts.timeout;
        let sent = Instant::now();
        let slow = |_| HandshakeError::Slow {
            timeout,
            elapsed: sent.elapsed(),
        };
        tokio::time::timeout(timeout, probe(first, probe_key, &clock))
            .await
            .map_err(slow)??;
        Ok(Handshake {
            address: info,
            connections,
            clock,
            about,
        })
    }

    /// The address of the server. Queries the sentinels one after another, and takes the first that
    /// names a master.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::NoMaster`] if no sentinel names one. Errors of single sentinels are not
    /// reported.
    async fn address(&self, timeouts: &Timeouts) -> Result<ConnectionInfo, HandshakeError> {
        let (sentinels, service, master) = match self {
            Endpoint::Node(info) => return Ok(info.clone()),
            Endpoint::Master {
                sentinels,
                service,
                master,
            } => (sentinels, service, master),
        };
        for sentinel in sentinels {
            let lookup = async {
                let mut connection = open(sentinel.clone(), timeouts).await?;
                let mut command = redis::cmd("SENTINEL");
                command.arg("get-master-addr-by-name").arg(service);
                command.query_async(&mut connection).await
            };
            let master_address: Result<RedisResult<Option<(String, u16)>>, _> =
                tokio::time::timeout(timeouts.connect_timeout, lookup).await;
            if let Ok(Ok(Some((host, port)))) = master_address {
                return Ok(with_address(master, &host, port));
            }
        }
        Err(HandshakeError::NoMaster {
            service: service.clone(),
        })
    }

    /// Checks that the server is a master: a sentinel may still name one that was demoted.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::NoMaster`] if the server reports another role.
    async fn check_role(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), HandshakeError> {
        let Endpoint::Master { service, .. } = self else {
            return Ok(());
        };
        let role: RedisResult<Vec<Value>> = redis::cmd("ROLE").query_async(connection).await;
        let is_master = |role: &Vec<Value>| match role.first() {
            Some(Value::BulkString(name)) => name == b"master",
            Some(Value::SimpleString(name)) => name == "master",
            _ => false,
        };
        match role {
            Ok(role) if !is_master(&role) => Err(HandshakeError::NoMaster {
                service: service.clone(),
            }),
            // Access rules may forbid ROLE. The scripts, which run next, fail with READONLY on a
            // replica.
            _ => Ok(()),
        }
    }
}

/// Opens a connection with AUTH and SELECT, without the handshake.
///
/// The driver of the connection is spawned on the current runtime, and replies arrive only while
/// that is driven.
///
/// # Errors
///
/// The error of the redis crate, also when the connect timeout is over.
pub(in crate::store::redis) async fn open(
    info: ConnectionInfo,
    timeouts: &Timeouts,
) -> RedisResult<MultiplexedConnection> {
    install_crypto_provider();
    let client = Client::open(info.set_tcp_settings(tcp_settings()))?;
    let config = timeouts.connection();
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Installs the default crypto provider of rustls, unless the process has installed one. rustls may
/// panic without one.
fn install_crypto_provider() {
    #[cfg(feature = "redis-tls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have installed one in the meantime, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

impl ServerInfo {
    /// Sends INFO and reads the reply.
    ///
    /// # Errors
    ///
    /// The error of Redis, except for a server that refuses this command (`NOPERM`): its facts are
    /// empty.
    pub(in crate::store::redis) async fn fetch(
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<ServerInfo> {
        let info: RedisResult<String> = redis::cmd("INFO").query_async(connection).await;
        match info {
            Ok(info) => Ok(ServerInfo::read(&info)),
            Err(error) if matches!(CallError::classify(&error), CallError::Rejected) => {
                Ok(ServerInfo::default())
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the reply to INFO. Unknown and missing fields are not errors.
    fn read(info: &str) -> ServerInfo {
        let field = |name: &str| {
            let found = info.lines().find_map(|line| line.strip_prefix(name));
            found.map(|value| value.trim().to_owned())
        };
        let number = |name: &str| field(name)?.parse::<u64>().ok();
        let max_memory = number("maxmemory:").filter(|&bytes| bytes > 0);
        let rule = field("maxmemory_policy:");
        ServerInfo {
            version: field("redis_version:"),
            eviction: rule.filter(|rule| max_memory.is_some() && rule != "noeviction"),
            evicted: number("evicted_keys:").unwrap_or(0),
            memory_percent: max_memory.and_then(|max_memory| {
                let used = number("used_memory:")?;
                Some(used.saturating_mul(100) / max_memory)
            }),
        }
    }

    /// Checks that the version is supported. An unknown version passes.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::TooOld`] below [`MIN_VERSION`].
    fn check(&self) -> Result<(), HandshakeError> {
        let Some(version) = &self.version else {
            return Ok(());
        };
        let mut numbers = version.split('.').map(|scope| scope.parse().unwrap_or(0));
        let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if found < MIN_VERSION {
            return Err(HandshakeError::TooOld {
                version: version.clone(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_refused_by_its_version() {
        let about = ServerInfo::read("# Server\r\nredis_version:6.0.16\r\n");

        let refused = about.check().unwrap_err().to_string();

        assert!(refused.contains("6.0.16 is too old"), "{refused}");
        assert!(ServerInfo::read("redis_version:6.2.0").check().is_ok());
        assert!(ServerInfo::read("redis_version:10.0.0").check().is_ok());
    }

    #[test]
    fn eviction_matters_only_with_a_memory_bound() {
        let unbounded = ServerInfo::read("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n");
        let bounded = ServerInfo::read("maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n");
        let safe = ServerInfo::read("maxmemory:100\r\nmaxmemory_policy:noeviction\r\n");

        assert_eq!(unbounded.eviction, None);
        assert_eq!(bounded.eviction.as_deref(), Some("allkeys-lru"));
        assert_eq!(safe.eviction, None);
        assert_eq!(safe.memory_percent, None);
        let used = ServerInfo::read("used_memory:91\r\nmaxmemory:100\r\n");
        assert_eq!(used.memory_percent, Some(91));
    }
}
