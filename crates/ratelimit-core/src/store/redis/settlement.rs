//! A change to a charge as a script reads it, and the script's answer.

use super::{
    answer::{InvalidReply, answer_head},
    packed::push,
    question::{Part, TIME_IS_GIVEN, head, push_limits},
};
use crate::{
    policy::{Asked, Change, Overdraft, Purpose},
    store::{contract::Settled, receipt::Receipt},
    time::{MAX_EXACT, Timestamp},
};

/// The three arguments of the script that changes a charge; `lua/policy_settle.lua` describes them.
pub(super) fn arguments(
    receipt: &Receipt,
    part: Part,
    change: Change,
    now: Option<Timestamp>,
) -> [Vec<u8>; 3] {
    let settling = receipt.settling(change, now.unwrap_or_default());
    let flags = if now.is_some() { TIME_IS_GIVEN } else { 0 };
    let (code, units) = match change {
        Change::Refund { units } => (1, units),
        Change::Charge { units } => (2, units),
        Change::Release => (3, 0),
        Change::Renew => (4, 0),
    };
    let groups = part.groups(receipt.policy());
    let mut limits = head(flags, now, None, units);
    let nothing = Asked {
        cost: 0,
        slot: settling.slot,
        overdraft: Overdraft::Allowed,
        purpose: Purpose::Spend,
    };
    push_limits(&mut limits, groups, nothing);
    let is_whole = units >= settling.cost;
    let mut charged = vec![code, u8::from(is_whole)];
    push(&mut charged, settling.charged_at.as_micros());
    push(&mut charged, settling.cost.min(MAX_EXACT - 1));
    for bound in groups.iter().flat_map(|group| &group.bounds) {
        let mark = settling.marks.get(bound.place).copied().unwrap_or_default();
        push(&mut charged, mark.debt);
        push(&mut charged, mark.refunded);
    }
    [limits, settling.slot.to_le_bytes().to_vec(), charged]
}

/// The argument of the script that forgets; `lua/policy_reset.lua` describes it.
pub(super) fn reset_argument(now: Option<Timestamp>) -> Vec<u8> {
    let flags = if now.is_some() { TIME_IS_GIVEN } else { 0 };
    head(flags, now, None, 0)
}

/// What the script's answer means.
pub(super) fn answer(answer: &[u8]) -> Result<(Settled, Timestamp), InvalidReply> {
    let (settled, now, rest) = answer_head(answer)?;
    let settled = match settled {
        0 => Settled::Unchanged,
        1 => Settled::Changed,
        2 => Settled::Lost,
        _ => return Err(InvalidReply::Malformed),
    };
    if rest.is_empty() {
        Ok((settled, now))
    } else {
        Err(InvalidReply::Malformed)
    }
}
