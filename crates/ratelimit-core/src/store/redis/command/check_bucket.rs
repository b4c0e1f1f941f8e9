//! A hit on a policy of one bucket: `lua/check_bucket.lua`, the script that is called most.
//!
//! The script handles the usual states of a bucket. For any other it does nothing and replies
//! [`REPLY_FALLBACK`], and the general script decides.

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::CheckCommand,
        reply::{InvalidReply, WireReply, read_numbers, read_server_time, read_time},
    },
    script::Script,
    wire::{NUMBER_BYTES, REPLY_FALLBACK, read_f64, to_exact_u64, write_number},
};
use crate::{
    decision::Decision,
    limit::Limit,
    policy::EffectiveLimit,
    time::{MAX_EXACT, Timestamp},
};

/// Bytes of a bucket's state, and of one with refunds.
const STATE_BYTES: u32 = 28;
const REFUNDED_STATE_BYTES: u32 = 36;
/// Bytes of a stored value with either state. A charged hit is answered with the value that was written.
const VALUE_BYTES: usize = 40;
const REFUNDED_VALUE_BYTES: usize = 48;
/// Bytes of the other replies to a single hit, which are told apart by their length.
const TOO_LATE_BYTES: usize = NUMBER_BYTES;
const FALLBACK_BYTES: usize = NUMBER_BYTES + 1;
const DENIED_BYTES: usize = 3 * NUMBER_BYTES;

/// Decides a hit on a policy whose only limit is a bucket.
#[derive(Clone, Copy)]
pub(in crate::store::redis) struct BucketCommand<'a> {
    command: &'a CheckCommand,
    effective: &'a EffectiveLimit,
}

/// The state of a bucket that a script found, and how many hits it allowed.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct BucketReply {
    /// How many of the hits on the key fit.
    fitting: usize,
    /// The expiry of the stored value.
    expires: Timestamp,
    /// The debt before the first hit.
    debt: u64,
    /// The tokens that were refunded so far.
    refunded: u64,
}

impl BucketCommand<'_> {
    /// The fast command for a hit, if its policy has one limit, which is a bucket.
    pub(in crate::store::redis) fn new(command: &CheckCommand) -> Option<BucketCommand<'_>> {
        let [group] = command.groups() else {
            return None;
        };
        let [effective] = &*group.limits else {
            return None;
        };
        let is_bucket = matches!(
            effective.limit,
            Limit::TokenBucket(_) | Limit::LeakyBucket(_)
        );
        is_bucket.then_some(BucketCommand { command, effective })
    }

    /// The argument of both bucket scripts. `lua/bucket_prelude.lua` describes it.
    pub(in crate::store::redis) fn encode_bucket(&self, deadline: Option<Timestamp>) -> Vec<u8> {
        let (command, limit) = (self.command, &self.effective.limit);
        let period = limit.period_ticks();
        let grain = period.grain.micros();
        let mut bytes = Vec::with_capacity(9 * NUMBER_BYTES);
        write_number(
            &mut bytes,
            deadline.map_or(MAX_EXACT - 1, Timestamp::as_micros),
        );
        write_number(&mut bytes, self.debt_of_cost());
        write_number(&mut bytes, self.max_debt());
        write_number(&mut bytes, limit.per_period());
        write_number(&mut bytes, grain);
        bytes.extend_from_slice(&STATE_BYTES.to_le_bytes());
        bytes.push(limit.algorithm().code());
        bytes.extend_from_slice(&grain.to_le_bytes()[..3]);
        write_number(&mut bytes, period.ticks);
        let flags = command.read_only_flag() | command.time_flag();
        if flags != 0 {
            write_number(&mut bytes, flags.into());
            write_number(&mut bytes, command.now.unwrap_or_default().as_micros());
        }
        bytes
    }

    /// The debt that a hit adds.
    fn debt_of_cost(&self) -> u64 {
        let unit = self.effective.limit.period_ticks().ticks;
        self.command.params.cost.saturating_mul(unit)
    }

    /// The debt, with that of the hit, up to which the hit fits.
    fn max_debt(&self) -> u64 {
        let limit = &self.effective.limit;
        let demand = self.effective.demand(self.command.params);
        // A peek always fits.
        let reserve = if demand.cost == 0 { 0 } else { demand.reserve };
        limit.capacity().saturating_sub(reserve) * limit.period_ticks().ticks
    }

    /// Reads the entry of a key with `count` hits from a reply of `lua/check_bucket_batch.lua`. `None` is a fallback.
    pub(in crate::store::redis) fn decode_batch_entry(
        &self,
        count: usize,
        bytes: &mut &[u8],
    ) -> Result<Option<BucketReply>, InvalidReply> {
        let (first, rest) = read_f64(bytes).ok_or(InvalidReply::Malformed)?;
        *bytes = rest;
        // The sign is the shape of the entry. A written value begins with its expiry, which is not whole where the
        // value is corrupt. The rest is read all the same, so that the entries of other keys are found.
        if first >= 0.0 || first.is_nan() {
            let (mut entry, _) = self.decode_written(Timestamp::default(), count, bytes)?;
            let expires = to_exact_u64(first).ok_or(InvalidReply::CorruptState)?;
            entry.expires = Timestamp::from_micros(expires);
            return Ok(Some(entry));
        }
        // Any other entry begins with -1 - n, where n is the number of hits that fit, or `REPLY_FALLBACK`.
        let fitting = to_exact_u64(first.abs()).and_then(|number| number.checked_sub(1));
        let fitting = fitting.and_then(|fitting| usize::try_from(fitting).ok());
        match fitting {
            Some(fitting) if fitting == usize::from(REPLY_FALLBACK) => Ok(None),
            Some(fitting) if fitting <= count => {
                let [debt, expires, refunded] = read_numbers(bytes)?;
                Ok(Some(BucketReply {
                    fitting,
                    expires: Timestamp::from_micros(expires),
                    debt,
                    refunded,
                }))
            }
            _ => Err(InvalidReply::Malformed),
        }
    }

    /// Reads the rest of a written value, behind its expiry, and the time of the write. `count` hits were charged.
    fn decode_written(
        &self,
        expires: Timestamp,
        count: usize,
        bytes: &mut &[u8],
    ) -> Result<(BucketReply, Timestamp), InvalidReply> {
        let (length, rest) = bytes.split_first_chunk().ok_or(InvalidReply::Malformed)?;
        // The code of the algorithm and the grain are those that were sent.
        *bytes = rest.get(4..).ok_or(InvalidReply::Malformed)?;
        let [owed, _unit, at, refunded] = match u32::from_le_bytes(*length) {
            STATE_BYTES => read_numbers(bytes).map(|[owed, unit, at]| [owed, unit, at, 0])?,
            REFUNDED_STATE_BYTES => read_numbers(bytes)?,
            _ => return Err(InvalidReply::Malformed),
        };
        let added = self.debt_of_cost().saturating_mul(count as u64);
        let reply = BucketReply {
            fitting: count,
            expires,
            debt: owed.checked_sub(added).ok_or(InvalidReply::CorruptState)?,
            refunded,
        };
        Ok((reply, Timestamp::from_micros(at)))
    }

    /// The decision for the hit at `index` among those on the key.
    pub(in crate::store::redis) fn decision(
        &self,
        reply: BucketReply,
        index: usize,
        now: Timestamp,
    ) -> Result<Decision, InvalidReply> {
        let command = self.command;
        let cost = if command.charges() {
            command.params.cost
        } else {
            0
        };
        let tick = self.effective.limit.period_ticks().tick(now);
        command.decode_decision(WireReply {
            fits: index < reply.fitting,
            now,
            expires: &[reply.expires],
            states: &[[tick, reply.debt, reply.refunded, 0]],
            before: cost.saturating_mul(index.min(reply.fitting) as u64),
        })
    }
}

impl ScriptCommand for BucketCommand<'_> {
    /// `None` where the script left the hit to the general script.
    type Output = Option<Decision>;

    fn script(&self) -> &'static Script {
        Script::check_bucket()
    }

    fn uses_server_clock(&self) -> bool {
        self.command.uses_server_clock()
    }

    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        [self.encode_bucket(deadline)]
    }

    fn decode(&self, reply: &[u8]) -> Result<Reply<Option<Decision>>, InvalidReply> {
        let mut rest = reply;
        let (bucket, now) = match reply.len() {
            TOO_LATE_BYTES => return Ok(Reply::TooLate(read_server_time(&mut rest)?)),
            FALLBACK_BYTES => return Ok(Reply::Done(None, read_server_time(&mut rest)?)),
            VALUE_BYTES | REFUNDED_VALUE_BYTES => {
                let expires = read_time(&mut rest)?;
                self.decode_written(expires, 1, &mut rest)?
            }
            DENIED_BYTES => {
                let now = read_server_time(&mut rest)?;
                let [debt, expires] = read_numbers(&mut rest)?;
                let fits = debt.saturating_add(self.debt_of_cost()) <= self.max_debt();
                let bucket = BucketReply {
                    fitting: usize::from(fits),
                    expires: Timestamp::from_micros(expires),
                    debt,
                    refunded: 0,
                };
                (bucket, now)
            }
            _ => return Err(InvalidReply::Malformed),
        };
        let decision = self.decision(bucket, 0, now)?;
        Ok(Reply::Done(Some(decision), now))
    }
}
