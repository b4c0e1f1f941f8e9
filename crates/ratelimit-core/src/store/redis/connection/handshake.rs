//! Making a connection, and making sure that it is of use before anybody gets it.

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

/// Where a link leads.
#[derive(Clone, Debug)]
pub(in crate::store::redis) enum Endpoint {
    Node(ConnectionInfo),
    Master {
        sentinels: Vec<ConnectionInfo>,
        service: String,
        master: Box<ConnectionInfo>,
    },
}

/// The name in logs and metrics: no user and no password.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Node(info) => info.addr().fmt(f),
            Endpoint::Master { service, .. } => f.write_str(service),
        }
    }
}

/// A connection that has just decided a hit, and what was learned of its server.
pub(in crate::store::redis) struct Handshake {
    pub(in crate::store::redis) connections: Vec<MultiplexedConnection>,
    pub(in crate::store::redis) clock: ClockOffset,
    pub(in crate::store::redis) about: ServerInfo,
}

/// What a server says of itself; nothing where its access list keeps that secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) struct ServerInfo {
    pub(in crate::store::redis) version: Option<String>,
    /// The rule by which keys are evicted before they expire, where there is one.
    pub(in crate::store::redis) eviction: Option<String>,
    /// How many keys were evicted so far.
    pub(in crate::store::redis) evicted: u64,
}

impl Endpoint {
    /// Connects, authenticates, and runs every script that writes on a reserved key.
    ///
    /// One more call has to be answered within the time budget of a hit: a server that is slower than that
    /// would only make callers wait for the failure mode.
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
        let trying = async {
            let about = ServerInfo::fetch(first).await?;
            about.check()?;
            self.check_role(first).await?;
            run_every_script(first, probe_key).await?;
            Ok::<ServerInfo, HandshakeError>(about)
        };
        let timeout = timeouts.connect_timeout;
        let about = tokio::time::timeout(timeout, trying)
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
            let params = async {
                let mut connection = open(sentinel.clone(), timeouts).await?;
                let mut command = redis::cmd("SENTINEL");
                command.arg("get-master-addr-by-name").arg(service);
                command.query_async(&mut connection).await
            };
            let answer: Result<RedisResult<Option<(String, u16)>>, _> =
                tokio::time::timeout(timeouts.connect_timeout, params).await;
            if let Ok(Ok(Some((host, port)))) = answer {
                return Ok(with_address(master, &host, port));
            }
        }
        Err(HandshakeError::NoMaster {
            service: service.clone(),
        })
    }

    /// A sentinel may still name a master that has been demoted.
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

/// A connection that is not tried yet.
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

/// TLS needs a provider of its primitives, and takes the process's own if there is one.
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
        let answer: RedisResult<String> = redis::cmd("INFO").query_async(connection).await;
        match answer {
            Ok(info) => Ok(ServerInfo::read(&info)),
            Err(error) if matches!(CallError::classify(&error), CallError::Rejected) => {
                Ok(ServerInfo::default())
            }
            Err(error) => Err(error),
        }
    }

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
