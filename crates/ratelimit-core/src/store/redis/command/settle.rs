//! A change to a charge as a script reads it, and the script's answer.

use crate::store::redis::command::{
    check::{FLAG_TIME_GIVEN, Scope, encode_header, encode_limits},
    number::write_number,
    reply::{InvalidReply, read_header},
};
use crate::{
    budget::Adjustment,
    policy::{HitMode, HitParams, Overdraft},
    store::{contract::Settlement, receipt::Receipt},
    time::{MAX_EXACT, Timestamp},
};

/// The three arguments of the script that changes a charge; `lua/policy_settle.lua` describes them.
pub(in crate::store::redis) fn encode(
    receipt: &Receipt,
    scope: Scope,
    change: Adjustment,
    now: Option<Timestamp>,
) -> [Vec<u8>; 3] {
    let settling = receipt.request(change, now.unwrap_or_default());
    let flags = if now.is_some() { FLAG_TIME_GIVEN } else { 0 };
    let (code, units) = match change {
        Adjustment::Refund { units } => (1, units),
        Adjustment::Charge { units } => (2, units),
        Adjustment::Release => (3, 0),
        Adjustment::Renew => (4, 0),
    };
    let groups = scope.groups(receipt.policy());
    let mut limits = encode_header(flags, now, None, units);
    let nothing = HitParams {
        cost: 0,
        slot: settling.slot,
        overdraft: Overdraft::Allowed,
        mode: HitMode::Charge,
    };
    encode_limits(&mut limits, groups, nothing);
    let is_whole = units >= settling.cost;
    let mut charged = vec![code, u8::from(is_whole)];
    write_number(&mut charged, settling.charged_at.as_micros());
    write_number(&mut charged, settling.cost.min(MAX_EXACT - 1));
    for effective in groups.iter().flat_map(|group| &group.limits) {
        let mark = settling
            .marks
            .get(effective.index)
            .copied()
            .unwrap_or_default();
        write_number(&mut charged, mark.debt);
        write_number(&mut charged, mark.refunded);
    }
    [limits, settling.slot.to_le_bytes().to_vec(), charged]
}

/// The argument of the script that forgets; `lua/policy_reset.lua` describes it.
pub(in crate::store::redis) fn encode_reset(now: Option<Timestamp>) -> Vec<u8> {
    let flags = if now.is_some() { FLAG_TIME_GIVEN } else { 0 };
    encode_header(flags, now, None, 0)
}

/// What the script's answer means.
pub(in crate::store::redis) fn decode(
    answer: &[u8],
) -> Result<(Settlement, Timestamp), InvalidReply> {
    let (settled, now, rest) = read_header(answer)?;
    let settled = match settled {
        0 => Settlement::Unchanged,
        1 => Settlement::Applied,
        2 => Settlement::LeaseLost,
        _ => return Err(InvalidReply::Malformed),
    };
    if rest.is_empty() {
        Ok((settled, now))
    } else {
        Err(InvalidReply::Malformed)
    }
}
