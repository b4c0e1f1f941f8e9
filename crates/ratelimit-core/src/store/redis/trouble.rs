//! What an error of the server means for the call, and for the connection.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// What went wrong with a call.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The server does not know the script, and ran nothing.
    MissingScript,
    /// The key lives at this address now, and nothing ran.
    Moved(String),
    /// The key is on its way to this address, and nothing ran.
    Ask(String),
    /// The keys are on two nodes while their slot moves, and nothing ran.
    TryAgain,
    /// The connection is of no more use.
    Lost,
    /// The server says that it can serve nobody at the moment, or nobody who writes.
    Down,
    /// This one call cannot be answered.
    Refused,
}

/// What a server says that cannot decide for anybody.
const DOWN: [&str; 10] = [
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

impl Trouble {
    pub(super) fn of(error: &RedisError) -> Trouble {
        let redirected = || error.redirect_node().map(|(address, _)| address.to_owned());
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Trouble::MissingScript,
            ErrorKind::Server(ServerErrorKind::Moved) => {
                redirected().map_or(Trouble::Refused, Trouble::Moved)
            }
            ErrorKind::Server(ServerErrorKind::TryAgain) => Trouble::TryAgain,
            ErrorKind::Server(ServerErrorKind::Ask) => {
                redirected().map_or(Trouble::Refused, Trouble::Ask)
            }
            ErrorKind::Io
            | ErrorKind::Parse
            | ErrorKind::AuthenticationFailed
            | ErrorKind::UnexpectedReturnType => Trouble::Lost,
            _ if says_down(error) => Trouble::Down,
            _ => Trouble::Refused,
        }
    }
}

fn says_down(error: &RedisError) -> bool {
    let said = |word: &&str| error.code() == Some(*word);
    // Redis 6 wraps what a command inside a script said: `... @user_script:5: -OOM command not ...`.
    let wrapped = |word: &&str| {
        let detail = error.detail().unwrap_or_default();
        detail.contains("@user_script") && detail.contains(&format!(": -{word} "))
    };
    DOWN.iter().any(|word| said(word) || wrapped(word))
}
