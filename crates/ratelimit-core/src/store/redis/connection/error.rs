//! The meaning of Redis errors for a call, and the errors of a handshake.

use std::{fmt, time::Duration};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::redis::command::reply::InvalidReply;

/// The oldest version of Redis that is supported.
pub(in crate::store::redis) const MIN_VERSION: (u32, u32) = (6, 2);

/// The meaning of an error reply, or of a broken connection, for a call.
#[derive(Debug)]
pub(in crate::store::redis) enum CallError {
    /// NOSCRIPT: the server does not have the script. Nothing was executed.
    NoScript,
    /// MOVED: the node at this address serves the key. Nothing was executed.
    Moved(String),
    /// ASK: the key is being moved to the node at this address. Nothing was executed.
    Ask(String),
    /// TRYAGAIN: the keys of the call are on two nodes while their hash slot moves. Nothing was executed.
    TryAgain,
    /// The connection broke. The call may or may not have been executed.
    ConnectionLost,
    /// The server refuses all calls at the moment, or all calls that write. Nothing was executed.
    ServerUnavailable,
    /// The server refuses this call. Others may succeed.
    Rejected,
}

/// Error codes of a server that can decide no hit.
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
    /// Finds out what an error means.
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
            | ErrorKind::Parse
            | ErrorKind::AuthenticationFailed
            | ErrorKind::UnexpectedReturnType => CallError::ConnectionLost,
            _ if is_unavailable(error) => CallError::ServerUnavailable,
            _ => CallError::Rejected,
        }
    }
}

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
#[derive(Debug)]
pub(in crate::store::redis) enum HandshakeError {
    /// The server refused, or the connection broke.
    Redis(RedisError),
    /// The server answers, but slower than the timeout of a hit.
    Slow {
        timeout: Duration,
        elapsed: Duration,
    },
    /// The server did not answer within the connect timeout.
    Silent { timeout: Duration },
    /// The version is below [`MIN_VERSION`].
    TooOld { version: String },
    /// No sentinel names a reachable master.
    NoMaster { service: String },
    /// A script replied with something else.
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
