//! The meaning of Redis errors for a call, and the errors of a handshake.
//!
//! | error | connection | slot map | the call |
//! |---|---|---|---|
//! | `NoScript` | stays | stays | is sent again with the source of the script |
//! | `Moved` | stays | is fetched again | is sent again to the named node |
//! | `Ask` | stays | stays, unless the node is unknown | is sent again to the named node, behind ASKING |
//! | `TryAgain` | stays | stays | is sent again after 1 to 8 ms |
//! | `ConnectionLost` | is replaced | is fetched again | fails with `Unavailable`; its outcome is unknown |
//! | `ServerUnavailable` | is replaced | is fetched again | fails with `Unavailable` |
//! | `Rejected` | stays | stays | fails with `Refused` |
//!
//! `store/redis/call.rs` carries this table out. A call is sent again only if nothing was executed.

use std::{fmt, time::Duration};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::redis::command::reply::InvalidReply;

/// The oldest version of Redis that is supported, as major and minor number.
pub(in crate::store::redis) const MIN_VERSION: (u32, u32) = (6, 2);

/// The meaning of an error reply, or of a broken connection, for a call.
///
/// The distinction that matters is whether the script may have run. Here only `ConnectionLost` leaves
/// that open, and `rate_limiter_ambiguous_total` counts it.
#[derive(Debug)]
pub(in crate::store::redis) enum CallError {
    /// NOSCRIPT: the server does not have the script. Nothing was executed.
    NoScript,
    /// MOVED: the node at this address (`host:port`) serves the key. Nothing was executed.
    Moved(String),
    /// ASK: the key is being moved to the node at this address (`host:port`). Nothing was executed.
    Ask(String),
    /// TRYAGAIN: the keys of the call are on two nodes while their hash slot moves. Nothing was executed.
    TryAgain,
    /// The connection broke. The call may or may not have been executed.
    ConnectionLost,
    /// The server refuses all calls at the moment, or all calls that write. Nothing was executed.
    ///
    /// The connection is replaced although it works: the handshake finds out when the server
    /// decides again, and callers do not wait in the meantime.
    ServerUnavailable,
    /// The server refuses this call, such as `WRONGTYPE` or `NOPERM`. Others may succeed.
    ///
    /// The connection stays in use. Otherwise one corrupt key would switch limiting off for all.
    Rejected,
}

/// Error codes of a server that can decide no hit.
///
/// - `LOADING`, `MASTERDOWN`, `CLUSTERDOWN`, `BUSY`: not ready.
/// - `READONLY`, `OOM`, `MISCONF`, `NOREPLICAS`: no writes.
/// - `NOAUTH`, `WRONGPASS`: the credentials have changed.
const UNAVAILABLE_CODES: [&str; 10] = [
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "READONLY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "BUSY",
    "NOAUTH",
    "WRONGPASS",
];

impl CallError {
    /// Finds out what an error means. An unknown error is `Rejected`, which leaves the connection
    /// in use.
    pub(in crate::store::redis) fn classify(error: &RedisError) -> CallError {
        let redirected = || error.redirect_node().map(|(address, _)| address.to_owned());
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => CallError::NoScript,
            ErrorKind::Server(ServerErrorKind::Moved) => {
                redirected().map_or(CallError::Rejected, CallError::Moved)
            }
            ErrorKind::Server(ServerErrorKind::TryAgain) => CallError::TryAgain,
            ErrorKind::Server(ServerErrorKind::Ask) => {
                redirected().map_or(CallError::Rejected, CallError::Ask)
            }
            ErrorKind::Io
            // Bytes that cannot be parsed may belong to another call, so the order of replies is
            // lost.
            | ErrorKind::Parse
            | ErrorKind::AuthenticationFailed
            | ErrorKind::UnexpectedReturnType => CallError::ConnectionLost,
            _ if is_unavailable(error) => CallError::ServerUnavailable,
            _ => CallError::Rejected,
        }
    }
}

/// Whether the error has one of the [`UNAVAILABLE_CODES`], in its code or wrapped in a script's
/// error.
fn is_unavailable(error: &RedisError) -> bool {
    let is_code = |word: &&str| error.code() == Some(*word);
    // Redis 6 wraps the error of a command inside a script: `... @user_script:5: -OOM command not ...`.
    let wrapped = |word: &&str| {
        let detail = error.detail().unwrap_or_default();
        detail.contains("@user_script") && detail.contains(&format!(": -{word} "))
    };
    UNAVAILABLE_CODES
        .iter()
        .any(|word| is_code(word) || wrapped(word))
}

/// Why a new connection is not put to use.
///
/// The log line "no connection to Redis, the failure mode decides" contains its text.
#[derive(Debug)]
pub(in crate::store::redis) enum HandshakeError {
    /// The server refused, or the connection could not be made or broke.
    Redis(RedisError),
    /// The server answers, but slower than the timeout of a hit. `rate_limiter_slow_calls_total`
    /// counts it.
    Slow {
        /// The timeout of a hit.
        timeout: Duration,
        /// The time until the probe was given up.
        elapsed: Duration,
    },
    /// The server did not answer within the connect timeout.
    Silent { timeout: Duration },
    /// The version is below [`MIN_VERSION`].
    TooOld { version: String },
    /// No sentinel names a master, or the named server is a replica.
    NoMaster { service: String },
    /// A script replied with something else than its format. A proxy, or a command that was
    /// renamed, can be the cause.
    Invalid(InvalidReply),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Redis(error) => error.fmt(f),
            HandshakeError::Slow { timeout, .. } => {
                write!(f, "the server is slower than {} ms", timeout.as_millis())
            }
            HandshakeError::Silent { timeout } => {
                write!(
                    f,
                    "the server did not answer within {} ms",
                    timeout.as_millis()
                )
            }
            HandshakeError::TooOld { version } => write!(
                f,
                "the server's version {version} is too old: rate limiting needs Redis {}.{} or Valkey",
                MIN_VERSION.0, MIN_VERSION.1
            ),
            HandshakeError::NoMaster { service } => {
                write!(
                    f,
                    "no sentinel names a reachable master for the service {service:?}"
                )
            }
            HandshakeError::Invalid(reply) => reply.fmt(f),
        }
    }
}

impl From<InvalidReply> for HandshakeError {
    fn from(reply: InvalidReply) -> HandshakeError {
        HandshakeError::Invalid(reply)
    }
}

impl From<RedisError> for HandshakeError {
    fn from(error: RedisError) -> HandshakeError {
        HandshakeError::Redis(error)
    }
}
