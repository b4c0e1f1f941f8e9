//! A joint hit on fixed windows that all must fit: `lua/check_joint_windows.lua`.

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::FLAG_TIME_GIVEN,
        check_batch::BatchCommand,
        check_joint::{JointCommand, JointMember},
        reply::{InvalidReply, read_header, read_numbers},
    },
    script::Script,
    wire::{NUMBER_BYTES, REPLY_ALLOWED, REPLY_DENIED, REPLY_FALLBACK, write_number},
};
use crate::{
    algorithm::Algorithm,
    decision::Charged,
    policy::EffectiveLimit,
    store::joint::JointRole,
    time::{MAX_EXACT, Timestamp},
};

/// The most members of a script: each takes 14 of the 200 local variables that a chunk may have.
const MAX_MEMBERS: usize = 8;

/// Fast path of a joint hit. With any unusual value the script does nothing, and the general one decides.
pub(in crate::store::redis) struct JointWindowsCommand<'a>(&'a JointCommand);

impl<'a> JointWindowsCommand<'a> {
    /// The message, if there are at most eight members, and each must fit, is charged, and has one limit: a fixed
    /// window on a key of its own.
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
    type Output = Option<Vec<Charged>>;

    fn script(&self) -> &'static Script {
        Script::check_joint_windows(self.0.members.len())
    }

    fn uses_server_clock(&self) -> bool {
        self.0.uses_server_clock()
    }

    /// `ARGV[1]`, numbers of 8 bytes: deadline (2^53 - 1 for none); for each member its cost, and its limit as
    /// [`BatchCommand::encode_limit`] writes it; flags and now, where the time is given.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let JointCommand { members, now } = self.0;
        let mut bytes = Vec::with_capacity((3 + 6 * members.len()) * NUMBER_BYTES);
        let deadline = deadline.map_or(MAX_EXACT - 1, Timestamp::as_micros);
        write_number(&mut bytes, deadline);
        for member in members {
            write_number(&mut bytes, member.command.params.cost);
            for effective in member.command.limits() {
                BatchCommand::new(&member.command, [1]).encode_limit(effective, &mut bytes);
            }
        }
        if let Some(now) = now {
            write_number(&mut bytes, FLAG_TIME_GIVEN.into());
            write_number(&mut bytes, now.as_micros());
        }
        [bytes]
    }

    /// Reads `REPLY_FALLBACK`, or a status and now as the general reply has them. Then for each member, as there but
    /// without a byte that says whether it fits and without the tick: expires, and the count before the hit.
    fn decode(&self, reply: &[u8]) -> Result<Reply<Option<Vec<Charged>>>, InvalidReply> {
        let (status, now, mut rest) = read_header(reply)?;
        if status == REPLY_FALLBACK {
            return Ok(Reply::Done(None, now));
        }
        let mut general = reply[..=NUMBER_BYTES].to_vec();
        if matches!(status, REPLY_ALLOWED | REPLY_DENIED) {
            for member in &self.0.members {
                read_member(member, now, &mut rest, &mut general)?;
            }
        }
        general.extend_from_slice(rest);
        Ok(match self.0.decode(&general)? {
            Reply::Done(decisions, now) => Reply::Done(Some(decisions), now),
            Reply::TooLate(now) => Reply::TooLate(now),
        })
    }
}

/// Reads the entry of a member, and appends it in the form of `lua/check_joint.lua`.
fn read_member(
    member: &JointMember,
    now: Timestamp,
    rest: &mut &[u8],
    general: &mut Vec<u8>,
) -> Result<(), InvalidReply> {
    let [expires, count] = read_numbers(rest)?;
    let effective = only_limit(member).ok_or(InvalidReply::Malformed)?;
    let params = member.command.params;
    let spent = count + params.cost + effective.demand(params).reserve;
    let tick = effective.limit.period_ticks().tick(now);
    general.push(u8::from(spent <= effective.limit.capacity()));
    for number in [expires, tick, count] {
        write_number(general, number);
    }
    Ok(())
}
