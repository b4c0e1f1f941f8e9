//! Errors of a Redis configuration. They occur when a value is set, never during a check.

use std::fmt;

/// Why a [`RedisConfig`](crate::RedisConfig) cannot be made.
///
/// An address that is valid but not reachable is accepted: the store connects in the background.
///
/// ```
/// use ratelimit_core::{InvalidRedisConfig, RedisConfig};
///
/// let error = RedisConfig::new("http://127.0.0.1").unwrap_err();
/// assert!(matches!(error, InvalidRedisConfig::Url { .. }));
/// assert!(error.to_string().contains("expected redis://"));
/// ```
#[non_exhaustive]
pub enum InvalidRedisConfig {
    /// The URL is not that of a Redis server, or it needs a feature of this crate that is not compiled in. Or a
    /// certificate cannot be read, or the URL has no TLS that would use it.
    Url {
        /// The URL without user and password.
        url: String,
        /// The error of the Redis client.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A `redis+sentinel://` URL does not name the service, the first part of its path.
    NoService,
    /// A prefix or version is not 1 to 64 of `A-Z a-z 0-9 . _ : @ -`.
    Name {
        /// The setting: `"prefix"` or `"version"`.
        what: &'static str,
        /// The refused value.
        value: String,
    },
}

impl fmt::Display for InvalidRedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidRedisConfig::Url { url, .. } if needs_tls(url) => {
                write!(f, "{url} needs TLS: turn on the feature redis-tls")
            }
            InvalidRedisConfig::Url { url, source } => write!(
                f,
                "{url:?} is not the address of a Redis server ({source}): expected redis://, \
                 rediss://, redis+unix://, redis+sentinel:// or redis+cluster://"
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

debug_as_display!(InvalidRedisConfig);

impl std::error::Error for InvalidRedisConfig {}

/// Whether the URL needs TLS that is not compiled in.
fn needs_tls(url: &str) -> bool {
    cfg!(not(feature = "redis-tls")) && url.starts_with("rediss")
}
