//! Messages to the scripts: each file encodes one message and decodes its reply.
//!
//! Commands only turn values into bytes and back. [`call`](crate::store::redis::call) sends them.
//!
//! | file | scripts | `KEYS` |
//! |---|---|---|
//! | [`check`] | `lua/check.lua` | one for each key of the policy |
//! | [`check_batch`] | `lua/check_unrolled.lua` | each key of the batch once |
//! | [`check_joint`] | `lua/check.lua` | the keys of all members, each once |
//! | [`check_joint_windows`] | `lua/check_joint_windows.lua` | one for each member |
//! | [`settle`] | `lua/settle.lua` | one for each key of the policy |
//! | [`reset`] | `lua/reset.lua` | one |
//!
//! Every script replies with one bulk string. [`reply`] reads the parts that the replies have in common.

pub(super) mod check;
pub(super) mod check_batch;
pub(super) mod check_joint;
pub(super) mod check_joint_windows;
pub(super) mod reply;
pub(super) mod reset;
pub(super) mod settle;

use redis::Cmd;

use crate::store::redis::{command::reply::InvalidReply, script::Script};
use crate::time::Timestamp;

/// How a call names its script.
#[derive(Clone, Copy, Debug)]
pub(super) enum Eval {
    /// By its SHA-1, with EVALSHA: 40 bytes instead of the whole script. The first attempt of every call.
    Sha,
    /// By its source, with EVAL, which also loads the script: after NOSCRIPT, and on the node that an ASK names.
    Source,
}

/// A message to one script, and how its reply is read.
///
/// A command is encoded again for each attempt, because the deadline on the server's clock may have changed. It holds
/// no state of the call, so encoding and decoding it twice is safe.
pub(super) trait ScriptCommand {
    /// The meaning of the reply.
    type Output;

    /// The script that understands the message.
    fn script(&self) -> &'static Script;

    /// Whether the script reads the server's clock. It does unless a test gives the time.
    ///
    /// With a given time the call carries no deadline, and its reply does not update the clock offset.
    fn uses_server_clock(&self) -> bool;

    /// The arguments of the call, `ARGV`.
    ///
    /// The script does nothing when it runs after `deadline`, which is a time of the server's clock. With `None`
    /// the call has no deadline: the offset of that clock is unknown yet, or a test gives the time.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>>;

    /// Reads the reply of the script.
    ///
    /// # Errors
    ///
    /// [`InvalidReply::Malformed`] if the bytes are not a reply of this script, and
    /// [`InvalidReply::CorruptState`] if their numbers cannot be those of the limits.
    fn decode(&self, reply: &[u8]) -> Result<Reply<Self::Output>, InvalidReply>;

    /// The call on the Redis keys `names`: `EVALSHA hash count names... arguments...`, or the same with EVAL.
    ///
    /// In a cluster all `names` must be in one hash slot.
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
    /// The deadline had passed, and the script did nothing. The call may be sent again.
    TooLate(Timestamp),
}

impl<T> Reply<T> {
    /// The server's time when the script ran, or the given time. Both variants carry it for the clock offset.
    pub(super) const fn now(&self) -> Timestamp {
        match self {
            Reply::Done(_, now) | Reply::TooLate(now) => *now,
        }
    }
}
