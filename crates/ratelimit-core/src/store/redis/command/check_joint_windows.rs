//! A joint hit on fixed windows that all must fit: `lua/check_joint_windows.lua`.

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::FLAG_TIME_GIVEN,
        check_batch::encode_unrolled,
        check_joint::{JointCommand, JointMember},
        reply::{CheckReply, InvalidReply, read_header, read_number, read_numbers},
    },
    script::Script,
    wire::{MEMBER_FITS, NUMBER_BYTES, REPLY_ALLOWED, REPLY_DENIED, REPLY_FALLBACK, write_number},
};
use crate::{
    algorithm::Algorithm,
    policy::EffectiveLimit,
    store::joint::JointRole,
    time::{MAX_EXACT, Timestamp},
};

/// The most members of a script: each takes 17 of the 200 local variables that a chunk may have.
const MAX_MEMBERS: usize = 8;

/// Fast path of a joint hit. With any unusual value the script does nothing, and the general one decides.
pub(in crate::store::redis) struct JointWindowsCommand<'a>(&'a JointCommand);

impl<'a> JointWindowsCommand<'a> {
    /// The message, if there are at most eight members of one cost, and each must fit, is charged, and has one limit: a
    /// fixed window on a key that no other member has.
    pub(in crate::store::redis) fn new(joint: &'a JointCommand) -> Option<JointWindowsCommand<'a>> {
        let mut members = (1..).zip(&joint.members);
        let is_window = |(number, member): (u16, &JointMember)| {
            member.role == JointRole::Must
                && member.command.params.cost == joint.members[0].command.params.cost
                && *member.key_numbers == [number]
                && member.command.read_only_flag() == 0
                && only_limit(member).is_some_and(|effective| {
                    effective.limit.algorithm() == Algorithm::FixedWindow
                        // The count with the cost is below twice the limit, and must be an exact double.
                        && effective.limit.capacity() < MAX_EXACT / 2
                })
        };
        let is_small = joint.members.len() <= MAX_MEMBERS;
        (is_small && members.all(is_window)).then_some(JointWindowsCommand(joint))
    }
}

/// The limit of a member, if it has only one.
fn only_limit(member: &JointMember) -> Option<&EffectiveLimit> {
    let mut limits = member.command.limits();
    limits.next().filter(|_| limits.next().is_none())
}

impl ScriptCommand for JointWindowsCommand<'_> {
    /// `None` if the general script must decide.
    type Output = Option<Vec<CheckReply>>;

    fn script(&self) -> &'static Script {
        Script::check_joint_windows(self.0.members.len())
    }

    fn uses_server_clock(&self) -> bool {
        self.0.uses_server_clock()
    }

    /// `ARGV[1]` as [`encode_unrolled`] writes it.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let JointCommand { members, now } = self.0;
        let limits = members.iter().flat_map(|member| {
            let params = member.command.params;
            member
                .command
                .limits()
                .map(move |effective| (effective, params))
        });
        let flags = now.map_or(0, |_| FLAG_TIME_GIVEN);
        let cost = members
            .first()
            .map_or(0, |member| member.command.params.cost);
        [encode_unrolled(flags, *now, deadline, cost, limits)]
    }

    /// Reads `REPLY_FALLBACK`, or a status and now as the general reply has them. Then `expires` of all members, and for
    /// each its tick and the count before the hit.
    fn decode(&self, reply: &[u8]) -> Result<Reply<Option<Vec<CheckReply>>>, InvalidReply> {
        let (status, now, mut rest) = read_header(reply)?;
        if status == REPLY_FALLBACK {
            return Ok(Reply::Done(None, now));
        }
        let mut general = reply[..=NUMBER_BYTES].to_vec();
        if matches!(status, REPLY_ALLOWED | REPLY_DENIED) {
            let members = &self.0.members;
            let expires = members.iter().map(|_| read_number(&mut rest));
            let expires = expires.collect::<Result<Vec<u64>, InvalidReply>>()?;
            for (member, expires) in members.iter().zip(expires) {
                let [tick, count] = read_numbers(&mut rest)?;
                let effective = only_limit(member).ok_or(InvalidReply::Malformed)?;
                let params = member.command.params;
                let spent = count + params.cost + effective.demand(params).reserve;
                let fits = spent <= effective.limit.capacity();
                general.push(if fits { MEMBER_FITS } else { 0 });
                for number in [expires, tick, count] {
                    write_number(&mut general, number);
                }
            }
        }
        general.extend_from_slice(rest);
        Ok(match self.0.decode(&general)? {
            Reply::Done(replies, now) => Reply::Done(Some(replies), now),
            Reply::TooLate(now) => Reply::TooLate(now),
        })
    }
}
