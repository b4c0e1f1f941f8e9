//! Configuration of a Redis store.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, ConnectionInfo,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};

use tokio::sync::Semaphore;

use crate::store::redis::{
    error::InvalidRedisConfig,
    keyspace::KeySpace,
    tls::{self, ClientPem, TlsPem},
    url::Topology,
};
use crate::{key::is_plain, time::Clock};

/// Configuration of a [`RedisStore`](crate::RedisStore): address, names of keys, timeouts.
///
/// | setting | default |
/// |---|---|
/// | [`prefix`](Self::prefix), [`version`](Self::version) | `rate_limiter`, `v1` |
/// | [`timeout`](Self::timeout) | 100 ms |
/// | [`connect_timeout`](Self::connect_timeout) | 250 ms |
/// | [`max_in_flight`](Self::max_in_flight) | 16384 |
/// | [`connections`](Self::connections) | 1 |
/// | [`unbatched_calls`](Self::unbatched_calls) | 4 |
/// | [`tls_root_certificate`](Self::tls_root_certificate) | the roots of the system |
/// | [`tls_client_certificate`](Self::tls_client_certificate) | none |
/// | [`clock`](Self::clock) | that of the Redis server |
///
/// | URL | meaning |
/// |---|---|
/// | `redis://[user:password@]host[:port][/db]` | one server |
/// | `rediss://...` | the same over TLS (feature `redis-tls`) |
/// | `redis+unix:///path/to.sock` | one server on a unix socket |
/// | `redis+sentinel://host[:port],host/service[/db]` | the master that sentinels name |
/// | `redis+cluster://host[:port],host` | a cluster, found from any of its nodes |
///
/// Sentinels and clusters also take `user:password@` in front of the first host, and `rediss+sentinel://` and
/// `rediss+cluster://` are the same over TLS. `?sentinel_password=...` is the password of the sentinels themselves.
/// Characters with a meaning in URLs are percent-encoded in passwords. A parameter without an effect is an error: `?db=3` is
/// one of unix sockets only.
///
/// Instances share budgets if they have the same server, database, prefix and version. The other settings may differ.
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
    /// The servers. Not used by stores on a connection of the application.
    pub(super) target: Topology,
    /// Certificates for TLS. They are in `target` as well; each setter applies all of them again.
    pub(super) tls: TlsPem,
    /// The prefix and version of Redis keys.
    pub(super) keys: KeySpace,
    /// Timeouts and bounds.
    pub(super) timeouts: Timeouts,
    /// The clock of decisions. Only a manual one is read; otherwise scripts read the server's.
    pub(super) clock: Clock,
}

/// The longest timeout: a deadline far in the future is beyond the range of [`Instant`](std::time::Instant).
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Timeouts and bounds, which connections and batches copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// For one decision, from the start of the check to its answer. Also for one batch, one settlement and one probe.
    pub(super) timeout: Duration,
    /// For opening a socket, and again for the handshake behind it.
    pub(super) connect_timeout: Duration,
    /// Decisions of one policy in flight in one store, at least 1. Four times as many background tasks may give charges back.
    pub(super) max_in_flight: usize,
    /// Sockets to each server, at least 1.
    pub(super) connections: usize,
    /// Single calls of a batch queue in flight before further hits are batched, at least 1.
    pub(super) unbatched_calls: usize,
}

impl RedisConfig {
    /// The timeout of a decision unless [`timeout`](Self::timeout) sets another.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(100);

    /// A configuration with defaults for the server, sentinels or cluster at `url`.
    ///
    /// It opens no connection.
    ///
    /// ```
    /// use ratelimit_core::{InvalidRedisConfig, RedisConfig};
    ///
    /// let single = RedisConfig::new("redis://app:secret@127.0.0.1:6379/2")?;
    /// let sentinels = RedisConfig::new("redis+sentinel://10.0.0.1,10.0.0.2/mymaster")?;
    /// let cluster = RedisConfig::new("redis+cluster://10.0.0.1:7000,10.0.0.2:7000")?;
    ///
    /// let no_service = RedisConfig::new("redis+sentinel://10.0.0.1");
    /// assert!(matches!(no_service, Err(InvalidRedisConfig::NoService)));
    /// # Ok::<(), InvalidRedisConfig>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`InvalidRedisConfig::Url`] if `url` is not the address of a Redis server, or needs a feature that is not
    ///   compiled in.
    /// - [`InvalidRedisConfig::NoService`] if a `redis+sentinel://` address names no service.
    pub fn new(url: &str) -> Result<RedisConfig, InvalidRedisConfig> {
        Ok(RedisConfig {
            target: Topology::parse(url)?,
            tls: TlsPem::default(),
            keys: KeySpace::default(),
            timeouts: Timeouts::DEFAULT,
            clock: Clock::system(),
        })
    }

    /// Sets the prefix of every Redis key. The default is `rate_limiter`.
    ///
    /// Applications that share a server need different prefixes, unless they share budgets on purpose. A colon separates
    /// the prefix from the version, so the prefix `a:b` with the version `c` names the same keys as `a` with `b:c`. A store
    /// whose prefix or version contains a colon logs a warning.
    ///
    /// ```
    /// use ratelimit_core::{InvalidRedisConfig, RedisConfig};
    ///
    /// let config = RedisConfig::new("redis://127.0.0.1:6379")?.prefix("shop")?;
    /// assert!(matches!(config.prefix("my shop"), Err(InvalidRedisConfig::Name { .. })));
    /// # Ok::<(), InvalidRedisConfig>(())
    /// ```
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
    /// A new version starts with fresh budgets. The values of the old one expire by themselves. A change of limits
    /// needs no new version, because stored values are converted.
    ///
    /// ```
    /// # use ratelimit_core::RedisConfig;
    /// let config = RedisConfig::new("redis://127.0.0.1:6379")?.version("v2")?;
    /// # Ok::<(), ratelimit_core::InvalidRedisConfig>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRedisConfig::Name`] if `version` is not 1 to 64 of `A-Z a-z 0-9 . _ : @ -`.
    pub fn version(mut self, version: &str) -> Result<RedisConfig, InvalidRedisConfig> {
        self.keys.version = name("version", version)?;
        Ok(self)
    }

    /// Sets the timeout of a decision. The default is 100 ms. After it the failure mode decides.
    ///
    /// - The timeout travels with the call: a script that Redis executes later does nothing.
    /// - It includes the time in a queue for a batch, redirections in a cluster and a second call after a fallback.
    /// - After five calls in a row that are slower, a new connection is probed. If the probe is slower too, the connection
    ///   is out of use until one is faster.
    /// - It must exceed the round trip to Redis: a server that answers more slowly is never used.
    /// - More than a day counts as a day.
    ///
    /// ```
    /// # use ratelimit_core::RedisConfig;
    /// # use std::time::Duration;
    /// let config = RedisConfig::new("redis://10.1.0.7:6379")?.timeout(Duration::from_millis(50));
    /// # Ok::<(), ratelimit_core::InvalidRedisConfig>(())
    /// ```
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> RedisConfig {
        self.timeouts.timeout = timeout.min(MAX_TIMEOUT);
        self
    }

    /// Sets the timeout of connecting and of the handshake. The default is 250 ms. Only the first decisions wait
    /// for it, each at most for its own timeout.
    ///
    /// It applies to each socket, to each lookup at a sentinel and to the handshake, one after another.
    ///
    /// ```
    /// # use ratelimit_core::RedisConfig;
    /// # use std::time::Duration;
    /// let config = RedisConfig::new("redis://10.1.0.7:6379")?.connect_timeout(Duration::from_secs(1));
    /// # Ok::<(), ratelimit_core::InvalidRedisConfig>(())
    /// ```
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> RedisConfig {
        self.timeouts.connect_timeout = timeout;
        self
    }

    /// Sets how many decisions of one policy may be in flight. The default is 1024. The failure mode decides the rest.
    ///
    /// All policies together have fewer than twice as many, so that one policy leaves some to the others: a policy gets a
    /// permit while it holds fewer than are free.
    ///
    /// The bound is that of one store with all its clones. 0 counts as 1. Settlements and resets are not bounded by it.
    /// A store decides at most this number in a round trip: 1024 over a link of 20 ms are 51,000 decisions a second.
    ///
    /// ```
    /// # use ratelimit_core::RedisConfig;
    /// let config = RedisConfig::new("redis://127.0.0.1:6379")?.max_in_flight(32_768);
    /// # Ok::<(), ratelimit_core::InvalidRedisConfig>(())
    /// ```
    #[doc(alias = "bulkhead")]
    #[must_use]
    pub fn max_in_flight(mut self, max: usize) -> RedisConfig {
        self.timeouts.max_in_flight = max.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the number of connections to each server, which calls use in turn. The default is one. 0 counts as 1.
    ///
    /// A single connection carries any number of concurrent calls. They are replaced together when one breaks.
    ///
    /// ```
    /// # use ratelimit_core::RedisConfig;
    /// let config = RedisConfig::new("redis://127.0.0.1:6379")?.connections(2);
    /// # Ok::<(), ratelimit_core::InvalidRedisConfig>(())
    /// ```
    #[must_use]
    pub fn connections(mut self, connections: usize) -> RedisConfig {
        self.timeouts.connections = connections.max(1);
        self
    }

    /// Sets how many decisions of a policy are in flight at each server, each in a call of its own, before further ones
    /// are batched. The default is 4. 0 counts as 1.
    ///
    /// - No timer delays a batch. A batch contains the decisions that are queued when it starts, up to 64 of them. Up to
    ///   four batches are in flight, and to a far server one full batch more for each 0.4 ms of the round trip.
    /// - Decisions share a batch if their limits, cost and mode are equal, and in a cluster the hash slots of their
    ///   keys.
    /// - Policies with several keys, a concurrency limit, a penalty box, or a log that counts denied hits or has a
    ///   limit above 1,000 are not batched.
    /// - Each decision of a batch is the same as if it had been sent by itself.
    /// - `usize::MAX` turns batching off.
    ///
    /// ```
    /// # use ratelimit_core::RedisConfig;
    /// let unbatched = RedisConfig::new("redis://127.0.0.1:6379")?.unbatched_calls(usize::MAX);
    /// # Ok::<(), ratelimit_core::InvalidRedisConfig>(())
    /// ```
    #[must_use]
    pub fn unbatched_calls(mut self, calls: usize) -> RedisConfig {
        self.timeouts.unbatched_calls = calls.max(1);
        self
    }

    /// Trusts only servers with a certificate that this root certificate (PEM) has signed.
    ///
    /// It applies to all servers of the address: sentinels and their master, and all nodes of a cluster. Without the
    /// feature `redis-tls` it is an error.
    ///
    /// ```no_run
    /// use ratelimit_core::RedisConfig;
    ///
    /// let pem = std::fs::read("/etc/ssl/redis-ca.pem")?;
    /// let config = RedisConfig::new("rediss://redis.internal:6380")?.tls_root_certificate(&pem)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRedisConfig::Url`] if `pem` is not a certificate, or the address is not one of TLS (`rediss://`).
    pub fn tls_root_certificate(mut self, pem: &[u8]) -> Result<RedisConfig, InvalidRedisConfig> {
        self.tls.root = Some(pem.into());
        self.with_certificates()
    }

    /// Presents a client certificate (PEM, with its chain) and its private key (PEM) to servers that ask for one.
    ///
    /// It applies to the same servers as [`tls_root_certificate`](Self::tls_root_certificate), and needs the feature
    /// `redis-tls` as well.
    ///
    /// ```no_run
    /// use ratelimit_core::RedisConfig;
    ///
    /// let certificate = std::fs::read("/etc/ssl/limiter.pem")?;
    /// let key = std::fs::read("/etc/ssl/limiter.key")?;
    /// let config = RedisConfig::new("rediss://redis.internal:6380")?
    ///     .tls_client_certificate(&certificate, &key)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRedisConfig::Url`] if one of them cannot be read, or the address is not one of TLS (`rediss://`).
    pub fn tls_client_certificate(
        mut self,
        certificate: &[u8],
        key: &[u8],
    ) -> Result<RedisConfig, InvalidRedisConfig> {
        self.tls.client = Some(ClientPem {
            certificate: certificate.into(),
            key: key.into(),
        });
        self.with_certificates()
    }

    /// Applies the certificates to every server of the address.
    fn with_certificates(mut self) -> Result<RedisConfig, InvalidRedisConfig> {
        let (target, certificates) = (&mut self.target, &self.tls);
        let apply = |info: &mut ConnectionInfo| {
            let applied = tls::apply(info.clone(), certificates);
            *info = applied.map_err(|source| InvalidRedisConfig::Url {
                url: info.addr().to_string(),
                source: Box::new(source),
            })?;
            Ok(())
        };
        match target {
            Topology::Single(info) => apply(info)?,
            Topology::Sentinel {
                sentinels, master, ..
            } => {
                sentinels.iter_mut().try_for_each(apply)?;
                apply(master)?;
            }
            Topology::Cluster { seeds } => seeds.iter_mut().try_for_each(apply)?,
        }
        Ok(self)
    }

    /// Sets the clock of decisions, for tests. With [`Clock::system`], the default, the server's clock decides.
    ///
    /// With a [manual](Clock::manual) clock:
    ///
    /// - Each call carries the time, and scripts do not read the server's clock.
    /// - Calls carry no deadline, so a call that Redis executes after its timeout is charged.
    /// - Values stay in Redis for one hour of the server's time, whatever their limits need.
    ///
    /// ```
    /// use ratelimit_core::{Clock, RedisConfig, Timestamp};
    /// use std::time::Duration;
    ///
    /// let clock = Clock::manual(Timestamp::from_secs(1_700_000_000));
    /// let config = RedisConfig::new("redis://127.0.0.1:6379")?.clock(clock.clone());
    /// clock.advance(Duration::from_secs(60));
    /// # Ok::<(), ratelimit_core::InvalidRedisConfig>(())
    /// ```
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> RedisConfig {
        self.clock = clock;
        self
    }
}

impl RedisConfig {
    /// The settings that differ from their defaults, of those that only a connection of [`RedisStore::new`] has.
    ///
    /// [`RedisStore::new`]: crate::RedisStore::new
    pub(super) fn connection_settings(&self) -> Vec<&'static str> {
        let (set, default) = (&self.timeouts, Timeouts::DEFAULT);
        let settings = [
            (
                "connect_timeout",
                set.connect_timeout != default.connect_timeout,
            ),
            ("connections", set.connections != default.connections),
            (
                "unbatched_calls",
                set.unbatched_calls != default.unbatched_calls,
            ),
            ("tls_root_certificate", self.tls.root.is_some()),
            ("tls_client_certificate", self.tls.client.is_some()),
        ];
        let settings = settings.into_iter().filter(|(_, is_set)| *is_set);
        settings.map(|(name, _)| name).collect()
    }

    /// Logs settings that are valid and probably wrong.
    pub(super) fn log_doubtful_settings(&self) {
        for (what, value) in [
            ("prefix", &self.keys.prefix),
            ("version", &self.keys.version),
        ] {
            if value.contains(':') {
                tracing::warn!(
                    value,
                    "the {what} of the Redis keys contains a colon: another application whose prefix and version join to \
                     the same text shares these budgets; use a hyphen or a dot instead"
                );
            }
        }
        if self.timeouts.timeout.is_zero() {
            tracing::warn!(
                "the timeout of Redis is zero: Redis decides nothing, the failure mode decides everything"
            );
        }
    }
}

impl Timeouts {
    /// The defaults that the table of [`RedisConfig`] lists.
    const DEFAULT: Timeouts = Timeouts {
        timeout: RedisConfig::DEFAULT_TIMEOUT,
        connect_timeout: Duration::from_millis(250),
        max_in_flight: 16_384,
        connections: 1,
        unbatched_calls: 4,
    };

    /// The settings of a connection. It has no response timeout, because every call has a deadline of its own.
    pub(super) fn connection(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None)
            // A call that finds the buffer full waits for room. With room for every decision in flight none does.
            .set_pipeline_buffer_size(self.max_in_flight.max(1_024))
    }
}

/// TCP settings with which a vanished peer is noticed after seconds instead of hours.
///
/// - Idle: keepalive probes after 5 s, then every second.
/// - With data that is not acknowledged: an error after 2 s, on Linux.
pub(super) fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(1));
    let settings = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    // Keepalive probes are not sent while data is unacknowledged, so that case has a timeout of its own.
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(Duration::from_secs(2));
    settings
}

/// Checks a part of Redis keys. Braces are not allowed, so only the braces of the key form a hash tag.
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn settings_without_effect_on_a_connection_of_the_application_are_named() {
        let config = || RedisConfig::new("redis://127.0.0.1").unwrap();
        let shared = config().prefix("shop").unwrap();
        let shared = shared.timeout(Duration::from_millis(5)).max_in_flight(9);
        assert!(shared.connection_settings().is_empty());

        let own = config()
            .connections(2)
            .connect_timeout(Duration::from_secs(1));
        let own = own.unbatched_calls(usize::MAX);
        assert_eq!(
            own.connection_settings(),
            ["connect_timeout", "connections", "unbatched_calls"]
        );
    }

    #[test]
    fn the_largest_settings_are_bounded() {
        let config = RedisConfig::new("redis://127.0.0.1").unwrap();

        let timeouts = config
            .timeout(Duration::MAX)
            .max_in_flight(usize::MAX)
            .timeouts;

        assert!(Instant::now().checked_add(timeouts.timeout).is_some());
        // A larger channel would panic when the connection is made.
        let (_sender, _receiver) = tokio::sync::mpsc::channel::<()>(timeouts.max_in_flight);
        let _ = timeouts.connection();
    }
}
