//! Making a connection, and making sure that it is of use before anybody gets it.

use std::{fmt, time::Duration};

use redis::{Client, ConnectionInfo, RedisError, RedisResult, Value, aio::MultiplexedConnection};

use super::{
    answer::InvalidReply,
    config::{Patience, tcp_settings},
    probe::{try_every_script, try_script},
    server_clock::ServerClock,
    target::at,
    trouble::Trouble,
};

const OLDEST_SERVER: (u32, u32) = (6, 2);

/// Where a link leads.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Node(ConnectionInfo),
    Master {
        sentinels: Vec<ConnectionInfo>,
        service: String,
        master: Box<ConnectionInfo>,
    },
}

/// The name in logs and metrics: no user and no password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Node(info) => info.addr().fmt(f),
            Place::Master { service, .. } => f.write_str(service),
        }
    }
}

/// Why a connection is of no use.
#[derive(Debug)]
pub(super) enum Useless {
    Redis(RedisError),
    /// The server answers, but later than a hit may take.
    Slow {
        timeout: Duration,
    },
    /// The server did not answer in time.
    Silent {
        timeout: Duration,
    },
    TooOld {
        version: String,
    },
    NoMaster {
        service: String,
    },
    Invalid(InvalidReply),
}

impl fmt::Display for Useless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Useless::Redis(error) => error.fmt(f),
            Useless::Slow { timeout } => {
                write!(f, "the server is slower than {} ms", timeout.as_millis())
            }
            Useless::Silent { timeout } => {
                write!(
                    f,
                    "the server did not answer within {} ms",
                    timeout.as_millis()
                )
            }
            Useless::TooOld { version } => write!(
                f,
                "the server's version {version} is too old: rate limiting needs Redis {}.{} or Valkey",
                OLDEST_SERVER.0, OLDEST_SERVER.1
            ),
            Useless::NoMaster { service } => {
                write!(
                    f,
                    "no sentinel names a reachable master for the service {service:?}"
                )
            }
            Useless::Invalid(reply) => reply.fmt(f),
        }
    }
}

impl From<InvalidReply> for Useless {
    fn from(reply: InvalidReply) -> Useless {
        Useless::Invalid(reply)
    }
}

impl From<RedisError> for Useless {
    fn from(error: RedisError) -> Useless {
        Useless::Redis(error)
    }
}

/// A connection that has just decided a hit, and what was learned of its server.
pub(super) struct Tried {
    pub(super) connections: Vec<MultiplexedConnection>,
    pub(super) clock: ServerClock,
    pub(super) about: About,
}

/// What a server says of itself; nothing where its access list keeps that secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct About {
    pub(super) version: Option<String>,
    /// The rule by which keys are evicted before they expire, where there is one.
    pub(super) eviction: Option<String>,
    /// How many keys were evicted so far.
    pub(super) evicted: u64,
}

impl Place {
    /// Connects, authenticates, and runs every script that writes on a reserved key.
    ///
    /// One more call has to be answered within the time budget of a hit: a server that is slower than that
    /// would only make callers wait for the failure mode.
    pub(super) async fn connect(&self, patience: &Patience, probe: &str) -> Result<Tried, Useless> {
        let info = self.address(patience).await?;
        let mut connections = Vec::new();
        for _ in 0..patience.connections {
            connections.push(open(info.clone(), patience).await?);
        }
        let first = &mut connections[0];
        let clock = ServerClock::new();
        let trying = async {
            let about = About::ask(first).await?;
            about.check()?;
            self.check_role(first).await?;
            try_every_script(first, probe).await?;
            Ok::<About, Useless>(about)
        };
        let timeout = patience.connect_timeout;
        let about = tokio::time::timeout(timeout, trying)
            .await
            .map_err(|_| Useless::Silent { timeout })??;
        let timeout = patience.time_budget;
        tokio::time::timeout(timeout, try_script(first, probe, &clock))
            .await
            .map_err(|_| Useless::Slow { timeout })??;
        Ok(Tried {
            connections,
            clock,
            about,
        })
    }

    async fn address(&self, patience: &Patience) -> Result<ConnectionInfo, Useless> {
        let (sentinels, service, master) = match self {
            Place::Node(info) => return Ok(info.clone()),
            Place::Master {
                sentinels,
                service,
                master,
            } => (sentinels, service, master),
        };
        for sentinel in sentinels {
            let asked = async {
                let mut connection = open(sentinel.clone(), patience).await?;
                let mut question = redis::cmd("SENTINEL");
                question.arg("get-master-addr-by-name").arg(service);
                question.query_async(&mut connection).await
            };
            let answer: Result<RedisResult<Option<(String, u16)>>, _> =
                tokio::time::timeout(patience.connect_timeout, asked).await;
            if let Ok(Ok(Some((host, port)))) = answer {
                return Ok(at(master, &host, port));
            }
        }
        Err(Useless::NoMaster {
            service: service.clone(),
        })
    }

    /// A sentinel may still name a master that has been demoted.
    async fn check_role(&self, connection: &mut MultiplexedConnection) -> Result<(), Useless> {
        let Place::Master { service, .. } = self else {
            return Ok(());
        };
        let role: RedisResult<Vec<Value>> = redis::cmd("ROLE").query_async(connection).await;
        let is_master = |role: &Vec<Value>| match role.first() {
            Some(Value::BulkString(name)) => name == b"master",
            Some(Value::SimpleString(name)) => name == "master",
            _ => false,
        };
        match role {
            Ok(role) if !is_master(&role) => Err(Useless::NoMaster {
                service: service.clone(),
            }),
            _ => Ok(()),
        }
    }
}

/// A connection that is not tried yet.
pub(super) async fn open(
    info: ConnectionInfo,
    patience: &Patience,
) -> RedisResult<MultiplexedConnection> {
    use_our_cryptography();
    let client = Client::open(info.set_tcp_settings(tcp_settings()))?;
    let config = patience.connection();
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// TLS needs a provider of its primitives, and takes the process's own if there is one.
fn use_our_cryptography() {
    #[cfg(feature = "redis-tls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

impl About {
    pub(super) async fn ask(connection: &mut MultiplexedConnection) -> RedisResult<About> {
        let answer: RedisResult<String> = redis::cmd("INFO").query_async(connection).await;
        match answer {
            Ok(info) => Ok(About::read(&info)),
            Err(error) if matches!(Trouble::of(&error), Trouble::Refused) => Ok(About::default()),
            Err(error) => Err(error),
        }
    }

    fn read(info: &str) -> About {
        let field = |name: &str| {
            let found = info.lines().find_map(|line| line.strip_prefix(name));
            found.map(|value| value.trim().to_owned())
        };
        let bounded = field("maxmemory:").is_some_and(|bytes| bytes != "0");
        About {
            version: field("redis_version:"),
            eviction: field("maxmemory_policy:").filter(|rule| bounded && rule != "noeviction"),
            evicted: field("evicted_keys:")
                .and_then(|keys| keys.parse().ok())
                .unwrap_or(0),
        }
    }

    fn check(&self) -> Result<(), Useless> {
        let Some(version) = &self.version else {
            return Ok(());
        };
        let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
        let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if found < OLDEST_SERVER {
            return Err(Useless::TooOld {
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
        let about = About::read("# Server\r\nredis_version:6.0.16\r\n");

        let refused = about.check().unwrap_err().to_string();

        assert!(refused.contains("6.0.16 is too old"), "{refused}");
        assert!(About::read("redis_version:6.2.0").check().is_ok());
        assert!(About::read("redis_version:10.0.0").check().is_ok());
    }

    #[test]
    fn eviction_matters_only_with_a_memory_bound() {
        let unbounded = About::read("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n");
        let bounded = About::read("maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n");
        let safe = About::read("maxmemory:100\r\nmaxmemory_policy:noeviction\r\n");

        assert_eq!(unbounded.eviction, None);
        assert_eq!(bounded.eviction.as_deref(), Some("allkeys-lru"));
        assert_eq!(safe.eviction, None);
    }
}
