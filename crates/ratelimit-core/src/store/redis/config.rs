//! Configuration of a Redis store.

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

/// Configuration of a [`RedisStore`](crate::RedisStore): address, names of keys, timeouts.
///
/// | setting | default |
/// |---|---|
/// | [`prefix`](Self::prefix), [`version`](Self::version) | `rate_limiter`, `v1` |
/// | [`timeout`](Self::timeout) | 25 ms |
/// | [`connect_timeout`](Self::connect_timeout) | 250 ms |
/// | [`max_in_flight`](Self::max_in_flight) | 1024 |
/// | [`connections`](Self::connections) | 1 |
/// | [`unbatched_calls`](Self::unbatched_calls) | 2 |
///
/// | URL | meaning |
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

/// Timeouts and bounds, which connections and batches copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// For one decision.
    pub(super) timeout: Duration,
    /// For connecting and the handshake.
    pub(super) connect_timeout: Duration,
    /// Decisions in flight in one store.
    pub(super) max_in_flight: usize,
    /// Connections to each server.
    pub(super) connections: usize,
    /// Single calls of a policy in flight at each server before further hits are batched.
    pub(super) unbatched_calls: usize,
}

impl RedisConfig {
    /// A configuration with defaults for the server, sentinels or cluster at `url`.
    ///
    /// # Errors
    ///
    /// - [`InvalidRedisConfig::Url`] if `url` is not the address of a Redis server, or needs a feature that is not
    ///   compiled in.
    /// - [`InvalidRedisConfig::NoService`] if a `redis+sentinel://` address names no service.
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

    /// Sets the prefix of every Redis key. The default is `rate_limiter`.
    ///
    /// # Errors
    ///
    /// [`InvalidRedisConfig::Name`] if `prefix` is not 1 to 64 of `A-Z a-z 0-9 . _ : @ -`.
    pub fn prefix(mut self, prefix: &str) -> Result<RedisConfig, InvalidRedisConfig> {
        self.keys.prefix = name("prefix", prefix)?;
        Ok(self)
    }

    /// Sets the part of every Redis key behind the prefix. The default is `v1`.
    ///
    /// A new version starts with fresh budgets.
    ///
    /// # Errors
    ///
    /// [`InvalidRedisConfig::Name`] if `version` is not 1 to 64 of `A-Z a-z 0-9 . _ : @ -`.
    pub fn version(mut self, version: &str) -> Result<RedisConfig, InvalidRedisConfig> {
        self.keys.version = name("version", version)?;
        Ok(self)
    }

    /// Sets the timeout of a decision. The default is 25 ms. After it the failure mode decides.
    ///
    /// The timeout travels with the call: a script that Redis executes later does nothing.
    #[must_use]
    pub fn timeout(mut self, budget: Duration) -> RedisConfig {
        self.timeouts.timeout = budget;
        self
    }

    /// Sets the timeout of connecting and of the handshake. The default is 250 ms. No decision waits for it.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> RedisConfig {
        self.timeouts.connect_timeout = timeout;
        self
    }

    /// Sets how many decisions may be in flight. The default is 1024. The failure mode decides the rest.
    #[doc(alias = "bulkhead")]
    #[must_use]
    pub fn max_in_flight(mut self, max: usize) -> RedisConfig {
        self.timeouts.max_in_flight = max.max(1);
        self
    }

    /// Sets the number of connections to each server, which calls use in turn. The default is one.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> RedisConfig {
        self.timeouts.connections = connections.max(1);
        self
    }

    /// Sets how many decisions of a policy are in flight at each server, each in a call of its own, before further ones
    /// are batched. The default is 2.
    ///
    /// - No timer delays a batch. When a call completes, the decisions that are queued by then are sent in one call, up
    ///   to 64 of them.
    /// - Each decision of a batch is the same as if it had been sent by itself.
    /// - `usize::MAX` turns batching off.
    #[must_use]
    pub fn unbatched_calls(mut self, calls: usize) -> RedisConfig {
        self.timeouts.unbatched_calls = calls.max(1);
        self
    }

    /// Trusts only servers with a certificate that this root certificate (PEM) has signed.
    ///
    /// # Errors
    ///
    /// [`InvalidRedisConfig::Url`] if `pem` is not a certificate, or the address is not one of TLS (`rediss://`).
    pub fn tls_root_certificate(mut self, pem: &[u8]) -> Result<RedisConfig, InvalidRedisConfig> {
        let trust = |info: &mut ConnectionInfo| {
            *info = with_root(info.clone(), pem).map_err(|source| InvalidRedisConfig::Url {
                source: Box::new(source),
            })?;
            Ok(())
        };
        match &mut self.target {
            Topology::Single(info) => trust(info)?,
            Topology::Sentinel {
                sentinels, master, ..
            } => {
                sentinels.iter_mut().try_for_each(trust)?;
                trust(master)?;
            }
            Topology::Cluster { seeds } => seeds.iter_mut().try_for_each(trust)?,
        }
        Ok(self)
    }

    /// Sets the clock of decisions, for tests. With [`Clock::system`], the default, the server's clock decides.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> RedisConfig {
        self.clock = clock;
        self
    }
}

impl Timeouts {
    /// The settings of a connection. It has no response timeout, because every call has a deadline of its own.
    pub(super) fn connection(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(self.max_in_flight.max(1_024))
    }
}

/// TCP settings with which a vanished peer is noticed after seconds instead of hours.
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

/// Checks a part of Redis keys.
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
