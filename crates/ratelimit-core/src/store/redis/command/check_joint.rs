//! A joint hit, under several policies: `lua/check.lua`.

use smallvec::SmallVec;

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::{CheckCommand, FLAG_TIME_GIVEN, encode_header},
        reply::{CheckReply, InvalidReply, read_header},
    },
    script::Script,
    wire::{JOINT_ANY, JOINT_MUST, JOINT_WATCH, REPLY_ALLOWED, REPLY_DENIED, REPLY_TOO_LATE},
};
use crate::{policy::Policy, store::joint::JointRole, time::Timestamp};

/// Decides the members of a joint hit, and charges all that fit if the joint hit passes.
pub(in crate::store::redis) struct JointCommand {
    /// The members in the order in which they are decided.
    pub(in crate::store::redis) members: Vec<JointMember>,
    /// The time of a manual clock; `None` for the server's clock.
    pub(in crate::store::redis) now: Option<Timestamp>,
}

/// One member of a joint hit.
pub(in crate::store::redis) struct JointMember {
    /// The message that would decide it alone.
    pub(in crate::store::redis) command: CheckCommand,
    pub(in crate::store::redis) role: JointRole,
    /// The number of each of its keys among `KEYS`, from 1 as in Lua.
    pub(in crate::store::redis) key_numbers: SmallVec<[u16; 2]>,
}

impl ScriptCommand for JointCommand {
    type Output = Vec<CheckReply>;

    fn script(&self) -> &'static Script {
        Script::check(self.members.iter().map(|member| member.command.groups()))
    }

    fn uses_server_clock(&self) -> bool {
        self.now.is_none()
    }

    /// `ARGV[1]` is the header of [`encode_header`] with a cost of 0, then each member. `ARGV[2]` is the slot id of each
    /// member, 8 bytes, where there is a concurrency limit.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let flags = self.now.map_or(0, |_| FLAG_TIME_GIVEN);
        let mut bytes = encode_header(flags, self.now, deadline, 0);
        let mut slots = Vec::new();
        for member in &self.members {
            let role = match member.role {
                JointRole::Must => JOINT_MUST,
                JointRole::Any => JOINT_ANY,
                JointRole::Watch => JOINT_WATCH,
            };
            let numbers = member.key_numbers.iter().copied();
            member.command.encode_member(role, numbers, &mut bytes);
            slots.extend(member.command.params.slot.to_le_bytes());
        }
        let mut policies = self.members.iter().map(|member| &member.command.policy);
        let has_slots = policies.any(Policy::has_concurrency_limit);
        [bytes].into_iter().chain(has_slots.then_some(slots))
    }

    /// Reads `REPLY_ALLOWED` or `REPLY_DENIED` and now, then each member. The replies are in the order of the members.
    fn decode(&self, reply: &[u8]) -> Result<Reply<Vec<CheckReply>>, InvalidReply> {
        let (status, now, mut rest) = read_header(reply)?;
        let is_allowed = match status {
            REPLY_DENIED => false,
            REPLY_ALLOWED => true,
            REPLY_TOO_LATE => return Ok(Reply::TooLate(now)),
            _ => return Err(InvalidReply::Malformed),
        };
        let members = self.members.iter();
        let replies =
            members.map(|member| member.command.decode_member(now, is_allowed, &mut rest));
        let replies = replies.collect::<Result<Vec<CheckReply>, InvalidReply>>()?;
        if rest.is_empty() {
            Ok(Reply::Done(replies, now))
        } else {
            Err(InvalidReply::Malformed)
        }
    }
}
