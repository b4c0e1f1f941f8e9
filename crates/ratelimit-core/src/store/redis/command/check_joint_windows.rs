//! A joint hit on fixed windows that all must fit: `lua/check_joint_windows.lua`.

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check_joint::{JointCommand, JointMember},
        reply::{InvalidReply, read_header, read_number},
    },
    script::Script,
    wire::{NUMBER_BYTES, REPLY_ALLOWED, REPLY_DENIED, REPLY_FALLBACK, write_number},
};
use crate::{
    algorithm::Algorithm,
    decision::Decision,
    policy::EffectiveLimit,
    store::joint::JointRole,
    time::{MAX_EXACT, Timestamp},
};

/// Bytes of a value between expires and the count: a length, code and grain.
const FRAME_BYTES: usize = 8;

/// Fast path of a joint hit. With any unusual value the script does nothing, and the general one decides.
pub(in crate::store::redis) struct JointWindowsCommand<'a>(&'a JointCommand);

impl<'a> JointWindowsCommand<'a> {
    /// The message, if each member must fit, is charged, and has one limit: a fixed window on a key of its own.
    pub(in crate::store::redis) fn new(joint: &'a JointCommand) -> Option<JointWindowsCommand<'a>> {
        let mut members = (1..).zip(&joint.members);
        let is_window = |(number, member): (u16, &JointMember)| {
            member.role == JointRole::Must
                && *member.key_numbers == [number]
                && member.command.read_only_flag() == 0
                && only_limit(member).is_some_and(|effective| {
                    effective.limit.algorithm() == Algorithm::FixedWindow
                        // The count with the cost is below twice the limit, and must be an exact double.
                        && effective.limit.capacity() < MAX_EXACT / 2
                })
        };
        members.all(is_window).then_some(JointWindowsCommand(joint))
    }
}

/// The limit of a member, if it has only one.
fn only_limit(member: &JointMember) -> Option<&EffectiveLimit> {
    let mut limits = member.command.limits();
    limits.next().filter(|_| limits.next().is_none())
}

impl ScriptCommand for JointWindowsCommand<'_> {
    /// `None` if the general script must decide.
    type Output = Option<Vec<Decision>>;

    fn script(&self) -> &'static Script {
        Script::check_joint_windows()
    }

    fn uses_server_clock(&self) -> bool {
        self.0.uses_server_clock()
    }

    /// The arguments of `lua/check_joint.lua`.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        self.0.encode(deadline)
    }

    /// Reads `REPLY_FALLBACK`, or a status and now as the general reply has them. Then for each member:
    ///
    /// | bytes | content |
    /// |---|---|
    /// | 8 | expires of the stored value; only where the joint hit is denied |
    /// | 8 | expires of the value with the hit |
    /// | 8 | length, code and grain |
    /// | 8 | the count with the hit |
    /// | 8 | at, the tick of the hit |
    fn decode(&self, reply: &[u8]) -> Result<Reply<Option<Vec<Decision>>>, InvalidReply> {
        let (status, now, mut rest) = read_header(reply)?;
        if status == REPLY_FALLBACK {
            return Ok(Reply::Done(None, now));
        }
        let mut general = reply[..=NUMBER_BYTES].to_vec();
        if matches!(status, REPLY_ALLOWED | REPLY_DENIED) {
            for member in &self.0.members {
                read_member(member, &mut rest, status == REPLY_DENIED, &mut general)?;
            }
        }
        general.extend_from_slice(rest);
        Ok(match self.0.decode(&general)? {
            Reply::Done(decisions, now) => Reply::Done(Some(decisions), now),
            Reply::TooLate(now) => Reply::TooLate(now),
        })
    }
}

/// Reads the entry of a member, and appends it in the form of `lua/check_joint.lua`: whether it fits, expires, at, and
/// the count before the hit.
fn read_member(
    member: &JointMember,
    rest: &mut &[u8],
    is_denied: bool,
    general: &mut Vec<u8>,
) -> Result<(), InvalidReply> {
    let mut expires = read_number(rest)?;
    if is_denied {
        // The value with the hit was not written.
        let stored = expires;
        read_number(rest)?;
        expires = stored;
    }
    *rest = rest.get(FRAME_BYTES..).ok_or(InvalidReply::Malformed)?;
    let (with_hit, at) = (read_number(rest)?, read_number(rest)?);
    let params = member.command.params;
    let count = with_hit.checked_sub(params.cost);
    let count = count.ok_or(InvalidReply::CorruptState)?;
    let fits = only_limit(member).is_some_and(|effective| {
        with_hit + effective.demand(params).reserve <= effective.limit.capacity()
    });
    general.push(u8::from(fits));
    for number in [expires, at, count] {
        write_number(general, number);
    }
    Ok(())
}
