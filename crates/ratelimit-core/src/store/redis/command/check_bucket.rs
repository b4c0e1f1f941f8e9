//! Hits on policies that are one bucket, which have scripts of their own.

use crate::store::redis::{
    call::Reply,
    command::{
        check::CheckCommand,
        check_batch::{BatchEntry, REPLY_FALLBACK},
        number::{NUMBER_BYTES, read_f64, to_exact_u64, write_number},
        reply::{InvalidReply, read_numbers, read_server_time, read_time},
    },
};
use crate::{
    algorithm::WireState,
    decision::Decision,
    policy::EffectiveLimit,
    time::{MAX_EXACT, Timestamp},
};

/// The bytes of a bucket's state, and of one with refunds.
const STATE: u32 = 28;
const REFUNDED_STATE: u32 = 36;
/// The bytes of all that is stored of either.
const VALUE: usize = 40;
const REFUNDED_VALUE: usize = 48;
/// The bytes of the other replies to a single hit.
const TOO_LATE_REPLY: usize = NUMBER_BYTES;
const ODD_REPLY: usize = NUMBER_BYTES + 1;
const DENIED_REPLY: usize = 3 * NUMBER_BYTES;

/// A hit on a policy of one limit, which is a bucket.
#[derive(Clone, Copy)]
pub(in crate::store::redis) struct BucketCommand<'a> {
    pub(in crate::store::redis) command: &'a CheckCommand,
    pub(in crate::store::redis) effective: &'a EffectiveLimit,
}

impl BucketCommand<'_> {
    /// The first argument of the scripts; `lua/bucket_head.lua` describes it.
    pub(in crate::store::redis) fn encode(&self, deadline: Option<Timestamp>) -> Vec<u8> {
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
        bytes.extend_from_slice(&STATE.to_le_bytes());
        bytes.push(limit.algorithm().code());
        bytes.extend_from_slice(&grain.to_le_bytes()[..3]);
        write_number(&mut bytes, period.ticks);
        let flags = command.write_nothing_flag() | command.time_flag();
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

    /// The most debt that there may be with it.
    fn max_debt(&self) -> u64 {
        let (limit, ask) = (
            &self.effective.limit,
            self.effective.demand(self.command.params),
        );
        // A look always fits.
        let reserve = if ask.cost == 0 { 0 } else { ask.reserve };
        limit.capacity().saturating_sub(reserve) * limit.period_ticks().ticks
    }

    /// Reads what `lua/bucket_one.lua` answers; no decision when it has found something odd.
    pub(in crate::store::redis) fn decode(
        &self,
        answer: &[u8],
    ) -> Result<Reply<Option<Decision>>, InvalidReply> {
        let mut rest = answer;
        let (entries, now) = match answer.len() {
            TOO_LATE_REPLY => return Ok(Reply::TooLate(read_server_time(&mut rest)?)),
            ODD_REPLY => return Ok(Reply::Done(None, read_server_time(&mut rest)?)),
            VALUE | REFUNDED_VALUE => {
                let expires = read_time(&mut rest)?;
                self.decode_written(expires, 1, &mut rest)?
            }
            DENIED_REPLY => {
                let now = read_server_time(&mut rest)?;
                let [debt, expires] = read_numbers(&mut rest)?;
                let fits = debt.saturating_add(self.debt_of_cost()) <= self.max_debt();
                let entries = BatchEntry::Bucket {
                    fitting: usize::from(fits),
                    debt,
                    expires: Timestamp::from_micros(expires),
                    refunded: 0,
                };
                (entries, now)
            }
            _ => return Err(InvalidReply::Malformed),
        };
        let decision = entries.decision_for(0, self.command, now).transpose()?;
        Ok(Reply::Done(decision, now))
    }

    /// Reads what `lua/bucket_batch.lua` says of a key with `count` hits.
    pub(in crate::store::redis) fn decode_batch_entry(
        &self,
        count: usize,
        bytes: &mut &[u8],
    ) -> Result<BatchEntry, InvalidReply> {
        let (first, rest) = read_f64(bytes).ok_or(InvalidReply::Malformed)?;
        *bytes = rest;
        // The sign tells the shape. A written value begins with its expiry, which is not whole where the value is
        // corrupt: the rest is read all the same, so that the entries of other keys are found.
        if first >= 0.0 || first.is_nan() {
            let (entry, _) = self.decode_written(Timestamp::default(), count, bytes)?;
            let expires = to_exact_u64(first).ok_or(InvalidReply::CorruptState)?;
            return Ok(entry.expiring_at(Timestamp::from_micros(expires)));
        }
        // Below zero, and one less than how many fit.
        let fitting = to_exact_u64(first.abs()).and_then(|number| number.checked_sub(1));
        let fitting = fitting.and_then(|fitting| usize::try_from(fitting).ok());
        match fitting {
            Some(fitting) if fitting == usize::from(REPLY_FALLBACK) => Ok(BatchEntry::Fallback),
            Some(fitting) if fitting <= count => {
                let [debt, expires, refunded] = read_numbers(bytes)?;
                let expires = Timestamp::from_micros(expires);
                Ok(BatchEntry::Bucket {
                    fitting,
                    debt,
                    expires,
                    refunded,
                })
            }
            _ => Err(InvalidReply::Malformed),
        }
    }

    /// Reads what follows `expires` in a value that was written for `count` hits, and when that was.
    fn decode_written(
        &self,
        expires: Timestamp,
        count: usize,
        bytes: &mut &[u8],
    ) -> Result<(BatchEntry, Timestamp), InvalidReply> {
        let (length, rest) = bytes.split_first_chunk().ok_or(InvalidReply::Malformed)?;
        // Code and grain.
        *bytes = rest.get(4..).ok_or(InvalidReply::Malformed)?;
        let [owed, _unit, at, refunded] = match u32::from_le_bytes(*length) {
            STATE => read_numbers(bytes).map(|[owed, unit, at]| [owed, unit, at, 0])?,
            REFUNDED_STATE => read_numbers(bytes)?,
            _ => return Err(InvalidReply::Malformed),
        };
        let added = self.debt_of_cost().saturating_mul(count as u64);
        let entries = BatchEntry::Bucket {
            fitting: count,
            debt: owed.checked_sub(added).ok_or(InvalidReply::CorruptState)?,
            expires,
            refunded,
        };
        Ok((entries, Timestamp::from_micros(at)))
    }

    /// A debt and the tokens refunded, as the numbers of the limit.
    pub(in crate::store::redis) fn wire_state(
        &self,
        now: Timestamp,
        debt: u64,
        refunded: u64,
    ) -> WireState {
        [
            self.effective.limit.period_ticks().tick(now),
            debt,
            refunded,
            0,
        ]
    }
}
