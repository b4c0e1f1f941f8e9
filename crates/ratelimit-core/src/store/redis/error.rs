//! Errors of a Redis configuration.

use std::fmt;

/// Why a [`RedisConfig`](crate::RedisConfig) cannot be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum InvalidRedisConfig {
    /// The URL is not that of a Redis server.
    Url {
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A `redis+sentinel://` URL does not name the service.
    NoService,
    /// A prefix or version is not 1 to 64 of `A-Z a-z 0-9 . _ : @ -`.
    Name {
        /// `"prefix"` or `"version"`.
        what: &'static str,
        /// The refused value.
        value: String,
    },
}

impl fmt::Display for InvalidRedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidRedisConfig::Url { source } => write!(
                f,
                "not the address of a Redis server ({source}): expected redis://, rediss://, \
                 redis+unix://, redis+sentinel:// or redis+cluster://"
            ),
            InvalidRedisConfig::NoService => f.write_str(
                "a redis+sentinel:// address names the service: redis+sentinel://host:26379/mymaster",
            ),
            InvalidRedisConfig::Name { what, value } => {
                write!(f, "the {what} {value:?} must be 1 to 64 of A-Z a-z 0-9 . _ : @ -")
            }
        }
    }
}

impl std::error::Error for InvalidRedisConfig {}
