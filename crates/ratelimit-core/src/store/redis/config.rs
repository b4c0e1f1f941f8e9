//! Where Redis is, and how patient to be with it.

use std::{fmt, time::Duration};

use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _};

use super::keys::KeySpace;
use crate::{key::is_plain, time::Clock};

/// Where Redis is, how keys are named there, and how patient to be.
///
/// ```
/// use ratelimit_core::RedisConfig;
/// use std::time::Duration;
///
/// let config = RedisConfig::new("redis://127.0.0.1:6379")?
///     .prefix("shop")?
///     .time_budget(Duration::from_millis(10));
/// # Ok::<(), ratelimit_core::InvalidRedisConfig>(())
/// ```
#[derive(Clone, Debug)]
pub struct RedisConfig {
    pub(super) client: Client,
    pub(super) keys: KeySpace,
    pub(super) time_budget: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) most_in_flight: usize,
    pub(super) clock: Clock,
}

impl RedisConfig {
    /// The server at `url`, as in `redis://user:password@host:6379/0`.
    ///
    /// # Errors
    ///
    /// When `url` is not the address of a Redis server.
    pub fn new(url: &str) -> Result<RedisConfig, InvalidRedisConfig> {
        let refused = |source| InvalidRedisConfig::Url {
            source: Box::new(source),
        };
        let info = url.into_connection_info().map_err(refused)?;
        let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp)).map_err(refused)?;
        Ok(RedisConfig {
            client,
            keys: KeySpace::default(),
            time_budget: Duration::from_millis(25),
            connect_timeout: Duration::from_millis(250),
            most_in_flight: 1_024,
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
    pub fn time_budget(mut self, budget: Duration) -> RedisConfig {
        self.time_budget = budget;
        self
    }

    /// Decides by `clock` and not by the server's, for tests; the system's clock means the server's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> RedisConfig {
        self.clock = clock;
        self
    }

    pub(super) fn connection(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.time_budget))
            .set_pipeline_buffer_size(self.most_in_flight)
    }
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

/// Why a configuration cannot lead to a Redis server.
#[derive(Debug)]
#[non_exhaustive]
pub enum InvalidRedisConfig {
    /// The URL is not that of a Redis server.
    Url {
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A prefix or version is not 1 to 64 of `A-Z a-z 0-9 . _ : @ -`.
    Name {
        /// Which of the two.
        what: &'static str,
        /// The refused value.
        value: String,
    },
}

impl fmt::Display for InvalidRedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidRedisConfig::Url { .. } => f.write_str(
                "not the address of a Redis server (expected redis://[user:password@]host[:port][/db])",
            ),
            InvalidRedisConfig::Name { what, value } => {
                write!(f, "the {what} {value:?} must be 1 to 64 of A-Z a-z 0-9 . _ : @ -")
            }
        }
    }
}

impl std::error::Error for InvalidRedisConfig {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            InvalidRedisConfig::Url { source } => Some(&**source),
            InvalidRedisConfig::Name { .. } => None,
        }
    }
}
