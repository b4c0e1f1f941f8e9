//! One hit by the script of batches, `lua/check_unrolled.lua`: a batch of one key with one hit.

use crate::store::redis::{
    command::{
        Reply, ScriptCommand, check::CheckCommand, check_batch::BatchCommand, reply::InvalidReply,
    },
    script::Script,
};
use crate::{decision::Charged, time::Timestamp};

/// Decides one hit on the usual values of its key, and leaves any other to the [`CheckCommand`] itself.
pub(in crate::store::redis) struct SingleCommand<'a> {
    /// The hit.
    command: &'a CheckCommand,
    /// The message.
    batch: BatchCommand<'a>,
}

impl SingleCommand<'_> {
    /// The fast command for a hit, if its limits count by one key and none records denied hits or holds slots.
    pub(in crate::store::redis) fn new(command: &CheckCommand) -> Option<SingleCommand<'_>> {
        command.is_unrolled().then(|| SingleCommand {
            command,
            batch: BatchCommand::new(command, [1]),
        })
    }
}

impl ScriptCommand for SingleCommand<'_> {
    /// `None` where the script left the hit to the general script.
    type Output = Option<Charged>;

    fn script(&self) -> &'static Script {
        self.batch.script()
    }

    fn uses_server_clock(&self) -> bool {
        self.batch.uses_server_clock()
    }

    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        self.batch.encode(deadline)
    }

    fn decode(&self, reply: &[u8]) -> Result<Reply<Option<Charged>>, InvalidReply> {
        match self.batch.decode(reply)? {
            Reply::TooLate(now) => Ok(Reply::TooLate(now)),
            Reply::Done(entries, now) => {
                let entry = entries.first().ok_or(InvalidReply::Malformed)?;
                let decision = entry.decision_for(0, self.command, now)?;
                Ok(Reply::Done(decision, now))
            }
        }
    }
}
