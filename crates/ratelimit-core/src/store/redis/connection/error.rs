//! The meaning of Redis errors for a call, and the errors of a handshake.

use std::{fmt, time::Duration};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::redis::command::reply::InvalidReply;

/// The oldest version of Redis that is supported.
pub(in crate::store::redis) const MIN_VERSION: (u32, u32) = (6, 2);

/// What went wrong with a call.
#[derive(Debug)]
pub(in crate::store::redis) enum CallError {
    /// The server does not know the script, and ran nothing.
    NoScript,
    /// The key lives at this address now, and nothing ran.
    Moved(String),
    /// The key is on its way to this address, and nothing ran.
    Ask(String),
    /// The keys are on two nodes while their slot moves, and nothing ran.
    TryAgain,
    /// The connection is of no more use.
    ConnectionLost,
    /// The server says that it can serve nobody at the moment, or nobody who writes.
    ServerUnavailable,
    /// This one call cannot be answered.
    Rejected,
}

/// What a server says that cannot decide for anybody.
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
    let entries = |word: &&str| error.code() == Some(*word);
    // Redis 6 wraps what a command inside a script said: `... @user_script:5: -OOM command not ...`.
    let wrapped = |word: &&str| {
        let detail = error.detail().unwrap_or_default();
        detail.contains("@user_script") && detail.contains(&format!(": -{word} "))
    };
    UNAVAILABLE_CODES
        .iter()
        .any(|word| entries(word) || wrapped(word))
}

/// Why a new connection is not put to use.
#[derive(Debug)]
pub(in crate::store::redis) enum HandshakeError {
    Redis(RedisError),
    /// The server answers, but later than a hit may take.
    Slow {
        timeout: Duration,
        elapsed: Duration,
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
