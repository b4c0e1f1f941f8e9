//! Messages to the scripts: each file encodes one message and decodes its reply.
//!
//! Commands only turn values into bytes and back. [`call`](crate::store::redis::call) sends them.

pub(super) mod check;
pub(super) mod check_batch;
pub(super) mod check_bucket;
pub(super) mod reply;
pub(super) mod reset;
pub(super) mod settle;

use redis::Cmd;

use crate::store::redis::{command::reply::InvalidReply, script::Script};
use crate::time::Timestamp;

/// How a call names its script.
#[derive(Clone, Copy, Debug)]
pub(super) enum Eval {
    /// By its SHA-1: the server has the script already.
    Sha,
    /// By its source, after the server replied NOSCRIPT.
    Source,
}

/// A message to one script, and how its reply is read.
pub(super) trait ScriptCommand {
    /// The meaning of the reply.
    type Output;

    /// The script that understands the message.
    fn script(&self) -> &'static Script;

    /// Whether the script reads the server's clock. It does unless a test gives the time.
    fn uses_server_clock(&self) -> bool;

    /// The arguments of the call.
    ///
    /// The script does nothing when it runs after `deadline`, which is a time of the server's clock.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>>;

    /// Reads the reply of the script.
    ///
    /// # Errors
    ///
    /// [`InvalidReply::Malformed`] if the bytes are not a reply of this script, and
    /// [`InvalidReply::CorruptState`] if their numbers cannot be those of the limits.
    fn decode(&self, reply: &[u8]) -> Result<Reply<Self::Output>, InvalidReply>;

    /// The call on the Redis keys `names`.
    fn to_cmd<'n>(
        &self,
        eval: Eval,
        names: impl ExactSizeIterator<Item = &'n str>,
        deadline: Option<Timestamp>,
    ) -> Cmd {
        let script = self.script();
        let mut cmd = match eval {
            Eval::Sha => redis::cmd("EVALSHA"),
            Eval::Source => redis::cmd("EVAL"),
        };
        cmd.arg(match eval {
            Eval::Sha => &script.hash,
            Eval::Source => &script.text,
        });
        cmd.arg(names.len());
        for name in names {
            cmd.arg(name);
        }
        for argument in self.encode(deadline) {
            cmd.arg(argument);
        }
        cmd
    }
}

/// The reply of a script, and the server's time in it.
#[derive(Debug)]
pub(super) enum Reply<T> {
    /// The script ran.
    Done(T, Timestamp),
    /// The deadline had passed, and the script did nothing.
    TooLate(Timestamp),
}

impl<T> Reply<T> {
    /// The server's time when the script ran.
    pub(super) const fn now(&self) -> Timestamp {
        match self {
            Reply::Done(_, now) | Reply::TooLate(now) => *now,
        }
    }
}
