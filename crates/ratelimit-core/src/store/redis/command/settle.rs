//! Changing a charge that was made before: `lua/settle.lua` for refund, further charge, release and renewal.

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::{FLAG_TIME_GIVEN, Scope, encode_header, encode_limits},
        reply::{InvalidReply, read_header},
    },
    script::Script,
    wire::{
        SETTLE_CATCH_UP, SETTLE_CHARGE, SETTLE_CREDIT, SETTLE_REFUND, SETTLE_RELEASE, SETTLE_RENEW,
        SETTLED_APPLIED, SETTLED_LEASE_LOST, SETTLED_UNCHANGED, write_number,
    },
};
use crate::{
    budget::Adjustment,
    decision::RefundMark,
    policy::{HitMode, HitParams, Overdraft},
    store::{contract::Settlement, receipt::Receipt},
    time::{MAX_EXACT, Timestamp},
};

/// Changes a charge on the limits of one call.
///
/// - A refund credits at most the units that the receipt charged and that time has not restored since.
/// - A further charge takes as many units as fit, and forgives the rest.
/// - A release and a renewal are idempotent. A refund and a charge are not, so a call without a reply must not be sent
///   again.
/// - A charge from before a reset refunds nothing.
pub(in crate::store::redis) struct SettleCommand<'a> {
    /// The charge that is changed.
    pub(in crate::store::redis) receipt: &'a Receipt,
    /// The limits of the receipt's policy that this call changes: those of one key where a cluster separates the keys.
    pub(in crate::store::redis) scope: Scope,
    /// The change. A refund of more than the charged cost counts as the cost.
    pub(in crate::store::redis) change: Adjustment,
    /// The time of a manual clock; `None` for the server's clock.
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

    /// Three arguments:
    ///
    /// 1. The header of [`encode_header`] with the units of the change, then the limits of [`encode_limits`].
    /// 2. The id of the slot, 8 bytes; sent always, and read where there is a concurrency limit.
    /// 3. The charge:
    ///
    /// | offset | bytes | content |
    /// |---|---|---|
    /// | 0 | 1 | the change: `SETTLE_REFUND`, `SETTLE_CHARGE`, `SETTLE_RELEASE`, `SETTLE_RENEW`, `SETTLE_CATCH_UP` or `SETTLE_CREDIT` |
    /// | 1 | 1 | 1 if the units are the whole cost, else 0: a whole refund also releases the slot |
    /// | 2 | 8 | time of the charge, in microseconds of the store's clock |
    /// | 10 | 8 | cost of the charge, in units, at most 2^53 - 1 |
    /// | 18 + 16 i | 8 | mark of limit i of the scope: a bucket's debt after the charge, else 1; 0 for no refund. The units of limit i for `SETTLE_CATCH_UP` |
    /// | 26 + 16 i | 8 | tokens that the bucket of limit i had refunded before the charge |
    ///
    /// The message carries no deadline: a refund that runs late is still a refund.
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
            Adjustment::CatchUp { .. } => (SETTLE_CATCH_UP, 0),
            Adjustment::Credit { units } => (SETTLE_CREDIT, units),
            Adjustment::Release => (SETTLE_RELEASE, 0),
            Adjustment::Renew => (SETTLE_RENEW, 0),
        };
        let groups = self.scope.groups(self.receipt.policy());
        let mut limits = encode_header(flags, self.now, None, units);
        // With overdraft the reserve is 0: a further charge may use the headroom of the throttle.
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
            // Marks are in the order of the whole policy, also where the scope has some of its limits only.
            let mark = request.marks.get(effective.index);
            let mark = match request.change {
                Adjustment::CatchUp { units } => RefundMark::new(units[effective.index]),
                _ => mark.copied().unwrap_or_default(),
            };
            write_number(&mut charge, mark.debt);
            write_number(&mut charge, mark.refunded);
        }
        [limits, request.slot.to_le_bytes().to_vec(), charge]
    }

    /// Reads a reply of 9 bytes: a `SETTLED_` code and the server's time in microseconds.
    ///
    /// `SETTLED_LEASE_LOST` wins over `SETTLED_APPLIED` where several limits have slots.
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
