//! What an error of the server means for the call, and for the connection.

use redis::{ErrorKind, RedisError, ServerErrorKind};

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
