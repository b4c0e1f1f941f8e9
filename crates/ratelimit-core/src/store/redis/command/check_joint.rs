//! A joint hit, under several policies: `lua/check_joint.lua`.

use smallvec::SmallVec;

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::{CheckCommand, FLAG_TIME_GIVEN, encode_header, encode_limit},
        reply::{InvalidReply, WireReply, read_header, read_time},
    },
    script::Script,
    wire::{
        JOINT_ANY, JOINT_MUST, JOINT_WATCH, REPLY_ALLOWED, REPLY_DENIED, REPLY_TOO_LATE,
        write_number,
    },
};
use crate::{
    decision::Charged,
    policy::{HitMode, Policy},
    store::joint::JointRole,
    time::{MAX_EXACT, Timestamp},
};

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

impl JointMember {
    /// The decision of the member. Where the joint hit does not pass, a member that fits was not charged.
    fn decode(
        &self,
        rest: &mut &[u8],
        now: Timestamp,
        is_allowed: bool,
    ) -> Result<Charged, InvalidReply> {
        let (&fits, after) = rest.split_first().ok_or(InvalidReply::Malformed)?;
        *rest = after;
        let mut command = self.command.clone();
        if !is_allowed && fits == 1 {
            command.params.mode = HitMode::DryRun;
        }
        let expires = self.key_numbers.iter().map(|_| read_time(rest));
        let expires = expires.collect::<Result<SmallVec<[Timestamp; 2]>, InvalidReply>>()?;
        let states = command.read_states(rest)?;
        let reply = command.decode_limits(WireReply {
            fits: fits == 1,
            now,
            expires: &expires,
            states: &states,
            before: 0,
        })?;
        Ok(reply.charged())
    }
}

impl ScriptCommand for JointCommand {
    type Output = Vec<Charged>;

    fn script(&self) -> &'static Script {
        Script::check_joint(self.members.iter().map(|member| member.command.groups()))
    }

    fn uses_server_clock(&self) -> bool {
        self.now.is_none()
    }

    /// `ARGV[1]` is the header of [`encode_header`] with a cost of 0, then for each member:
    ///
    /// | offset | bytes | content |
    /// |---|---|---|
    /// | 0 | 1 | the role: `JOINT_MUST`, `JOINT_ANY` or `JOINT_WATCH` |
    /// | 1 | 1 | 1 if the member is read only, else 0 |
    /// | 2 | 8 | the cost; at most 2^53 - 1 |
    /// | 10 | 1 | the number of its limits |
    /// | then | 38 for each limit | the number of its key (2 bytes, from 1), and [`encode_limit`] |
    ///
    /// `ARGV[2]` is the slot id of each member, 8 bytes, where there is a concurrency limit.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let flags = self.now.map_or(0, |_| FLAG_TIME_GIVEN);
        let mut bytes = encode_header(flags, self.now, deadline, 0);
        let mut slots = Vec::new();
        for member in &self.members {
            let (command, params) = (&member.command, member.command.params);
            bytes.push(match member.role {
                JointRole::Must => JOINT_MUST,
                JointRole::Any => JOINT_ANY,
                JointRole::Watch => JOINT_WATCH,
            });
            bytes.push(command.read_only_flag());
            write_number(&mut bytes, params.cost.min(MAX_EXACT - 1));
            slots.extend(params.slot.to_le_bytes());
            // A policy has at most eight limits.
            bytes.push(u8::try_from(command.limits().count()).unwrap_or(u8::MAX));
            for (group, number) in command.groups().iter().zip(&member.key_numbers) {
                for effective in &group.limits {
                    bytes.extend(number.to_le_bytes());
                    encode_limit(&mut bytes, effective, params);
                }
            }
        }
        let mut policies = self.members.iter().map(|member| &member.command.policy);
        let has_slots = policies.any(Policy::has_concurrency_limit);
        [bytes].into_iter().chain(has_slots.then_some(slots))
    }

    /// Reads `REPLY_ALLOWED` or `REPLY_DENIED` and now; then for each member one byte, whether it fits, `expires` of each
    /// of its keys, and the numbers of each limit. The decisions are in the order of the members.
    fn decode(&self, reply: &[u8]) -> Result<Reply<Vec<Charged>>, InvalidReply> {
        let (status, now, mut rest) = read_header(reply)?;
        let is_allowed = match status {
            REPLY_DENIED => false,
            REPLY_ALLOWED => true,
            REPLY_TOO_LATE => return Ok(Reply::TooLate(now)),
            _ => return Err(InvalidReply::Malformed),
        };
        let decisions = self
            .members
            .iter()
            .map(|member| member.decode(&mut rest, now, is_allowed))
            .collect::<Result<Vec<Charged>, InvalidReply>>()?;
        if rest.is_empty() {
            Ok(Reply::Done(decisions, now))
        } else {
            Err(InvalidReply::Malformed)
        }
    }
}
