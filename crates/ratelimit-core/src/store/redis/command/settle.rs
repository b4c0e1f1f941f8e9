//! Changing a charge that was made before: refund, further charge, release, renewal.

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::{FLAG_TIME_GIVEN, Scope, encode_header, encode_limits},
        reply::{InvalidReply, read_header},
    },
    script::Script,
    wire::{
        SETTLE_CHARGE, SETTLE_REFUND, SETTLE_RELEASE, SETTLE_RENEW, SETTLED_APPLIED,
        SETTLED_LEASE_LOST, SETTLED_UNCHANGED, write_number,
    },
};
use crate::{
    budget::Adjustment,
    policy::{HitMode, HitParams, Overdraft},
    store::{contract::Settlement, receipt::Receipt},
    time::{MAX_EXACT, Timestamp},
};

/// Changes a charge. `lua/settle.lua` describes the message.
pub(in crate::store::redis) struct SettleCommand<'a> {
    /// The charge.
    pub(in crate::store::redis) receipt: &'a Receipt,
    /// The limits of the receipt's policy that this call changes.
    pub(in crate::store::redis) scope: Scope,
    pub(in crate::store::redis) change: Adjustment,
    /// The time, where a test gives it.
    pub(in crate::store::redis) now: Option<Timestamp>,
}

impl ScriptCommand for SettleCommand<'_> {
    type Output = Settlement;

    fn script(&self) -> &'static Script {
        Script::settle(self.scope.groups(self.receipt.policy()))
    }

    fn uses_server_clock(&self) -> bool {
        self.now.is_none()
    }

    /// Carries no deadline: a refund that runs late is still a refund.
    fn encode(&self, _deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let request = self
            .receipt
            .request(self.change, self.now.unwrap_or_default());
        let flags = if self.now.is_some() {
            FLAG_TIME_GIVEN
        } else {
            0
        };
        let (code, units) = match request.change {
            Adjustment::Refund { units } => (SETTLE_REFUND, units),
            Adjustment::Charge { units } => (SETTLE_CHARGE, units),
            Adjustment::Release => (SETTLE_RELEASE, 0),
            Adjustment::Renew => (SETTLE_RENEW, 0),
        };
        let groups = self.scope.groups(self.receipt.policy());
        let mut limits = encode_header(flags, self.now, None, units);
        let params = HitParams {
            cost: 0,
            slot: request.slot,
            overdraft: Overdraft::Allowed,
            mode: HitMode::Charge,
        };
        encode_limits(&mut limits, groups, params);
        let is_whole = units >= request.cost;
        let mut charge = vec![code, u8::from(is_whole)];
        write_number(&mut charge, request.charged_at.as_micros());
        write_number(&mut charge, request.cost.min(MAX_EXACT - 1));
        for effective in groups.iter().flat_map(|group| &group.limits) {
            let mark = request.marks.get(effective.index);
            let mark = mark.copied().unwrap_or_default();
            write_number(&mut charge, mark.debt);
            write_number(&mut charge, mark.refunded);
        }
        [limits, request.slot.to_le_bytes().to_vec(), charge]
    }

    fn decode(&self, reply: &[u8]) -> Result<Reply<Settlement>, InvalidReply> {
        let (status, now, rest) = read_header(reply)?;
        let settlement = match status {
            SETTLED_UNCHANGED => Settlement::Unchanged,
            SETTLED_APPLIED => Settlement::Applied,
            SETTLED_LEASE_LOST => Settlement::LeaseLost,
            _ => return Err(InvalidReply::Malformed),
        };
        if rest.is_empty() {
            Ok(Reply::Done(settlement, now))
        } else {
            Err(InvalidReply::Malformed)
        }
    }
}
