//! A reset: `lua/reset.lua`, which clears what keys have spent.

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::{FLAG_TIME_GIVEN, encode_header},
        reply::{InvalidReply, read_header},
    },
    script::Script,
    wire::REPLY_DONE,
};
use crate::time::Timestamp;

/// Clears what keys have spent under all limits of a policy.
///
/// - A value is replaced by a tail with the time of the reset, which expires when the value would have. Receipts from
///   before the reset then refund nothing.
/// - A value that cannot be read is deleted, so a reset also repairs a corrupt key.
/// - The message has no limits, so one script serves all policies.
/// - A reset that runs a second time also clears the charges that were made in between.
pub(in crate::store::redis) struct ResetCommand {
    /// The time of a manual clock; `None` for the server's clock.
    pub(in crate::store::redis) now: Option<Timestamp>,
}

impl ScriptCommand for ResetCommand {
    type Output = ();

    fn script(&self) -> &'static Script {
        Script::reset()
    }

    fn uses_server_clock(&self) -> bool {
        self.now.is_none()
    }

    /// The header of [`encode_header`] with 0 units, 25 bytes.
    ///
    /// It carries no deadline: a reset that runs late still resets.
    fn encode(&self, _deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let flags = if self.now.is_some() {
            FLAG_TIME_GIVEN
        } else {
            0
        };
        [encode_header(flags, self.now, None, 0)]
    }

    /// Reads a reply of 9 bytes: `REPLY_DONE` and the server's time in microseconds.
    fn decode(&self, reply: &[u8]) -> Result<Reply<()>, InvalidReply> {
        // Without a deadline the script has one status only.
        let (status, now, rest) = read_header(reply)?;
        if status == REPLY_DONE && rest.is_empty() {
            Ok(Reply::Done((), now))
        } else {
            Err(InvalidReply::Malformed)
        }
    }
}
