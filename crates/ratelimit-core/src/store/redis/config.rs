//! Where Redis is, and how patient to be with it.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, ConnectionInfo,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};

use crate::store::redis::{
    error::InvalidRedisConfig,
    keyspace::KeySpace,
    url::{Topology, with_root},
};
use crate::{key::is_plain, time::Clock};

/// Where Redis is, how keys are named there, and how patient to be.
///
/// | URL | what it is |
/// |---|---|
/// | `redis://[user:password@]host[:port][/db]` | one server |
/// | `rediss://...` | the same over TLS (feature `redis-tls`) |
/// | `redis+unix:///path/to.sock` | one server on a unix socket |
/// | `redis+sentinel://host[:port],host/service[/db]` | the master that sentinels name |
/// | `redis+cluster://host[:port],host` | a cluster, found from any of its nodes |
///
/// ```
/// use ratelimit_core::RedisConfig;
/// use std::time::Duration;
///
/// let config = RedisConfig::new("redis://127.0.0.1:6379")?
///     .prefix("shop")?
///     .timeout(Duration::from_millis(10));
/// # Ok::<(), ratelimit_core::InvalidRedisConfig>(())
/// ```
#[derive(Clone, Debug)]
pub struct RedisConfig {
    pub(super) target: Topology,
    pub(super) keys: KeySpace,
    pub(super) timeouts: Timeouts,
    pub(super) clock: Clock,
}

/// How long to wait for what, and how much at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) max_in_flight: usize,
    pub(super) connections: usize,
    pub(super) unbatched_calls: usize,
}

impl RedisConfig {
    /// What `url` points at.
    ///
    /// # Errors
    ///
    /// When `url` is not the address of a Redis server.
    pub fn new(url: &str) -> Result<RedisConfig, InvalidRedisConfig> {
        Ok(RedisConfig {
            target: Topology::parse(url)?,
            keys: KeySpace::default(),
            timeouts: Timeouts {
                timeout: Duration::from_millis(25),
                connect_timeout: Duration::from_millis(250),
                max_in_flight: 1_024,
                connections: 1,
                unbatched_calls: 2,
            },
            clock: Clock::system(),
        })
    }

    /// What every key begins with; `rate_limiter` unless set.
    ///
    /// # Errors
    ///
    /// When `prefix` is not 1 to 64 of `A-Z a-z 0-9 . _ : @ -`.
    pub fn prefix(mut self, prefix: &str) -> Result<RedisConfig, InvalidRedisConfig> {
        self.keys.prefix = name("prefix", prefix)?;
        Ok(self)
    }

    /// What follows the prefix, `v1` unless set; another version drops all budgets.
    ///
    /// # Errors
    ///
    /// When `version` is not 1 to 64 of `A-Z a-z 0-9 . _ : @ -`.
    pub fn version(mut self, version: &str) -> Result<RedisConfig, InvalidRedisConfig> {
        self.keys.version = name("version", version)?;
        Ok(self)
    }

    /// How long a decision may take, 25 ms unless set; then the failure mode decides.
    #[must_use]
    pub fn timeout(mut self, budget: Duration) -> RedisConfig {
        self.timeouts.timeout = budget;
        self
    }

    /// How long connecting may take, 250 ms unless set; no decision ever waits for it.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> RedisConfig {
        self.timeouts.connect_timeout = timeout;
        self
    }

    /// How many decisions may be under way at once, 1024 unless set; the failure mode decides the rest.
    #[must_use]
    pub fn max_in_flight(mut self, most: usize) -> RedisConfig {
        self.timeouts.max_in_flight = most.max(1);
        self
    }

    /// How many connections share the work at each server, one unless set.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> RedisConfig {
        self.timeouts.connections = connections.max(1);
        self
    }

    /// How many decisions of a policy are under way at each server, each in a call of its own, before
    /// further ones share calls, 2 unless set.
    ///
    /// Nobody waits for company: as soon as a call comes back, whatever has come in the meantime is
    /// sent in one call, up to 64 decisions. Each is answered as if it had been sent by itself, which
    /// `usize::MAX` does.
    #[must_use]
    pub fn unbatched_calls(mut self, calls: usize) -> RedisConfig {
        self.timeouts.unbatched_calls = calls.max(1);
        self
    }

    /// Trusts servers that this root certificate (PEM) vouches for, and no others.
    ///
    /// # Errors
    ///
    /// When `pem` is no certificate, or an address is not one of TLS.
    pub fn tls_root_certificate(mut self, pem: &[u8]) -> Result<RedisConfig, InvalidRedisConfig> {
        let trusting = |info: &mut ConnectionInfo| {
            *info = with_root(info.clone(), pem).map_err(|source| InvalidRedisConfig::Url {
                source: Box::new(source),
            })?;
            Ok(())
        };
        match &mut self.target {
            Topology::Single(info) => trusting(info)?,
            Topology::Sentinel {
                sentinels, master, ..
            } => {
                sentinels.iter_mut().try_for_each(trusting)?;
                trusting(master)?;
            }
            Topology::Cluster { seeds } => seeds.iter_mut().try_for_each(trusting)?,
        }
        Ok(self)
    }

    /// Decides by `clock` and not by the server's, for tests; the system's clock means the server's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> RedisConfig {
        self.clock = clock;
        self
    }
}

impl Timeouts {
    /// A decision watches its own time, so the connection does not.
    pub(super) fn connection(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(self.max_in_flight.max(1_024))
    }
}

/// A peer that vanished without a word is noticed in seconds and not in hours.
pub(super) fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(1));
    let settings = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(Duration::from_secs(2));
    settings
}

fn name(what: &'static str, value: &str) -> Result<String, InvalidRedisConfig> {
    let valid = (1..=64).contains(&value.len()) && value.bytes().all(is_plain);
    if valid {
        Ok(value.to_owned())
    } else {
        Err(InvalidRedisConfig::Name {
            what,
            value: value.to_owned(),
        })
    }
}
