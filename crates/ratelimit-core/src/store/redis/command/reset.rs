//! Forgetting what keys have spent.

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::{FLAG_TIME_GIVEN, encode_header},
        reply::{InvalidReply, read_header},
    },
    script::Script,
};
use crate::time::Timestamp;

/// Forgets what keys have spent. `lua/reset.lua` describes the message.
pub(in crate::store::redis) struct ResetCommand {
    /// The time, where a test gives it.
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

    /// Carries no deadline: a reset that runs late still resets.
    fn encode(&self, _deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let flags = if self.now.is_some() {
            FLAG_TIME_GIVEN
        } else {
            0
        };
        [encode_header(flags, self.now, None, 0)]
    }

    fn decode(&self, reply: &[u8]) -> Result<Reply<()>, InvalidReply> {
        let (_, now, rest) = read_header(reply)?;
        if rest.is_empty() {
            Ok(Reply::Done((), now))
        } else {
            Err(InvalidReply::Malformed)
        }
    }
}
