//! Connecting: sockets, AUTH, version, role, and every script that writes.

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

/// The server that a connection leads to.
#[derive(Clone, Debug)]
pub(in crate::store::redis) enum Endpoint {
    /// A server with a known address.
    Node(ConnectionInfo),
    /// The current master of a service, which sentinels name.
    Master {
        sentinels: Vec<ConnectionInfo>,
        service: String,
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
pub(in crate::store::redis) struct Handshake {
    pub(in crate::store::redis) connections: Vec<MultiplexedConnection>,
    pub(in crate::store::redis) clock: ClockOffset,
    pub(in crate::store::redis) about: ServerInfo,
}

/// Facts from INFO. Empty where the access rules of the server forbid INFO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) struct ServerInfo {
    pub(in crate::store::redis) version: Option<String>,
    /// The `maxmemory-policy`, if the server may evict keys before they expire.
    pub(in crate::store::redis) eviction: Option<String>,
    /// Keys that were evicted since the server started.
    pub(in crate::store::redis) evicted: u64,
}

impl Endpoint {
    /// Connects, authenticates, and runs every script that writes on a reserved key.
    ///
    /// One more call must be answered within the timeout of a hit. A slower server would only make callers wait before
    /// the failure mode decides.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`], and the connection is not put to use.
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
            connections,
            clock,
            about,
        })
    }

    /// The address of the server. Asks the sentinels one after another.
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
            _ => Ok(()),
        }
    }
}

/// Opens a connection, without the handshake.
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

/// Installs the default crypto provider of rustls, unless the process has installed one.
fn install_crypto_provider() {
    #[cfg(feature = "redis-tls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

impl ServerInfo {
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

    /// Reads the reply to INFO.
    fn read(info: &str) -> ServerInfo {
        let field = |name: &str| {
            let found = info.lines().find_map(|line| line.strip_prefix(name));
            found.map(|value| value.trim().to_owned())
        };
        let bounded = field("maxmemory:").is_some_and(|bytes| bytes != "0");
        ServerInfo {
            version: field("redis_version:"),
            eviction: field("maxmemory_policy:").filter(|rule| bounded && rule != "noeviction"),
            evicted: field("evicted_keys:")
                .and_then(|keys| keys.parse().ok())
                .unwrap_or(0),
        }
    }

    /// Checks that the version is supported.
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
    }
}
