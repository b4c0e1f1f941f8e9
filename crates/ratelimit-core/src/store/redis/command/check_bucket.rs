//! A hit on a policy of one bucket: `lua/check_bucket.lua`, the script that is called most.
//!
//! The script handles the usual states of a bucket. For any other it does nothing and replies
//! [`REPLY_FALLBACK`], and the general script decides.
//!
//! Usual states are a missing value, an expired one, and a value that was written under the same limit, is not ahead of the
//! clock and owes no more than the maximum. A fallback costs a second round trip within the same deadline. A value of
//! another limit falls back until the next charge rewrites it.
//!
//! The stored value of a bucket is also the reply to a charged hit:
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 8 | expires, in microseconds |
//! | 8 | 4 | length of the state: 28, or 36 with refunds |
//! | 12 | 1 | code of the algorithm |
//! | 13 | 3 | grain, in microseconds |
//! | 16 | 8 | debt, with the hits of this call |
//! | 24 | 8 | unit: the debt that a token costs, which is the period in ticks |
//! | 32 | 8 | at: now, in microseconds |
//! | 40 | 8 | tokens refunded so far; only in a state of 36 bytes |
//!
//! A debt is the number of tokens that are missing, times the unit. Each tick forgives as much debt as the bucket gains
//! tokens in a period, so a refill needs no fractions.

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

/// Bytes of a bucket's state.
const STATE_BYTES: u32 = 28;
/// Bytes of a bucket's state with a count of refunded tokens.
const REFUNDED_STATE_BYTES: u32 = 36;
/// Bytes of a stored value without refunds: expiry, length and state. A charged hit is answered with it.
const VALUE_BYTES: usize = 40;
/// Bytes of a stored value with refunds.
const REFUNDED_VALUE_BYTES: usize = 48;
// The other replies to a single hit. They have no status byte; their lengths differ from each other and from values.

/// Bytes of the reply after the deadline: now.
const TOO_LATE_BYTES: usize = NUMBER_BYTES;
/// Bytes of a fallback: now and [`REPLY_FALLBACK`].
const FALLBACK_BYTES: usize = NUMBER_BYTES + 1;
/// Bytes of the reply to a hit that is not charged, denied or read only: now, debt, expires.
const DENIED_BYTES: usize = 3 * NUMBER_BYTES;

/// Decides a hit on a policy whose only limit is a bucket.
///
/// A view of a [`CheckCommand`], made again wherever it is needed. Its message has no flag for a hit that another key
/// denied, so `execute/cross_slot.rs` sends the [`CheckCommand`] itself.
#[derive(Clone, Copy)]
pub(in crate::store::redis) struct BucketCommand<'a> {
    command: &'a CheckCommand,
    /// The only limit of `command`.
    effective: &'a EffectiveLimit,
}

/// The state of a bucket that a script found, and how many hits it allowed. One for each key of a batch.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct BucketReply {
    /// How many of the hits on the key fit; the first ones. A read-only hit counts if it would fit.
    fitting: usize,
    /// The expiry of the stored value after the call; 0 without a value.
    expires: Timestamp,
    /// The debt before the first hit, refilled up to now.
    debt: u64,
    /// The tokens that were refunded so far; 0 for a single hit that was not charged, because it needs no mark.
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

    /// `ARGV[1]` of the bucket scripts, which `lua/bucket_prelude.lua` reads: 56 bytes, or 72 with flags.
    ///
    /// | offset | bytes | content |
    /// |---|---|---|
    /// | 0 | 8 | deadline, in microseconds; 2^53 - 1 for none |
    /// | 8 | 8 | the debt that a hit adds |
    /// | 16 | 8 | the maximum debt with the hit |
    /// | 24 | 8 | refill: the debt that is forgiven each tick |
    /// | 32 | 8 | grain, in microseconds |
    /// | 40 | 8 | shape: length 28 (4 bytes), code (1), grain (3), as in the stored value |
    /// | 48 | 8 | unit: the debt that a token costs |
    /// | 56 | 8 | flags, and behind them 8 bytes of now in microseconds; both left out when no flag is set |
    ///
    /// The script compares the shape with that of the value as one double and never computes with it.
    pub(in crate::store::redis) fn encode_bucket(&self, deadline: Option<Timestamp>) -> Vec<u8> {
        let flags = self.command.read_only_flag() | self.command.time_flag();
        self.encode_with(deadline, &[], flags)
    }

    /// The same with a request in front of the flags, which the caller chose.
    pub(in crate::store::redis) fn encode_with(
        &self,
        deadline: Option<Timestamp>,
        request: &[u64],
        flags: u8,
    ) -> Vec<u8> {
        let (command, limit) = (self.command, &self.effective.limit);
        let period = limit.period_ticks();
        let grain = period.grain.micros();
        let mut bytes = Vec::with_capacity((9 + request.len()) * NUMBER_BYTES);
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
        for number in request {
            write_number(&mut bytes, *number);
        }
        // A charge on the server's clock has no flags, and saves the server the unpacking of two numbers.
        if flags != 0 {
            write_number(&mut bytes, flags.into());
            write_number(&mut bytes, command.now.unwrap_or_default().as_micros());
        }
        bytes
    }

    /// The only limit of the policy.
    pub(in crate::store::redis) const fn effective(&self) -> &EffectiveLimit {
        self.effective
    }

    /// Whether the hit fits behind this debt.
    pub(in crate::store::redis) fn fits(&self, debt: u64) -> bool {
        debt.saturating_add(self.debt_of_cost()) <= self.max_debt()
    }

    /// The debt that a hit adds. A product beyond 2^53 belongs to an impossible hit, which is read only.
    fn debt_of_cost(&self) -> u64 {
        let unit = self.effective.limit.period_ticks().ticks;
        self.command.params.cost.saturating_mul(unit)
    }

    /// The debt, with that of the hit, up to which the hit fits: the capacity without the reserve, times the unit.
    fn max_debt(&self) -> u64 {
        let limit = &self.effective.limit;
        let demand = self.effective.demand(self.command.params);
        // A peek always fits.
        let reserve = if demand.cost == 0 { 0 } else { demand.reserve };
        limit.capacity().saturating_sub(reserve) * limit.period_ticks().ticks
    }

    /// Reads the entry of a key with `count` hits from a reply of `lua/check_bucket_batch.lua`. `None` is a fallback.
    ///
    /// | first number | rest of the entry | meaning |
    /// |---|---|---|
    /// | expires >= 0 | 32 or 40 bytes of the value that was written | all hits were charged |
    /// | -1 - n | debt, expires, refunded (8 bytes each) | n hits fit and were charged, unless read only |
    /// | -1 - `REPLY_FALLBACK` | none | nothing was done for this key |
    ///
    /// # Errors
    ///
    /// - [`InvalidReply::CorruptState`] if a number cannot be true. The entry is consumed.
    /// - [`InvalidReply::Malformed`] if the entry has another shape. The rest of the reply cannot be read then.
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
    ///
    /// The value has the debt with the hits, so their debt is subtracted again. States of other limits and a tail may
    /// be stored behind the state, but are not part of the reply.
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

    /// The decision for the hit at `index` among those on the key, from 0.
    ///
    /// Each hit is decided after the charges of those before it, and a denied hit after the charges of all that fit.
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
        // The debt was refilled up to now, so its tick is that of now.
        let tick = self.effective.limit.period_ticks().tick(now);
        let reply = command.decode_limits(WireReply {
            fits: index < reply.fitting,
            now,
            expires: &[reply.expires],
            states: &[[tick, reply.debt, reply.refunded, 0]],
            before: cost.saturating_mul(index.min(reply.fitting) as u64),
        })?;
        Ok(reply.decision())
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

    /// Reads a reply of `lua/check_bucket.lua`, whose length determines its meaning:
    ///
    /// | bytes | content | meaning |
    /// |---|---|---|
    /// | 8 | now | the deadline had passed, nothing was done |
    /// | 9 | now, `REPLY_FALLBACK` | nothing was done, the general script decides |
    /// | 24 | now, debt, expires | not charged: denied, or a read-only hit that may fit |
    /// | 40 or 48 | the value that was written | charged |
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
                // The reply has no status. This is the comparison of the script, on the same numbers.
                let bucket = BucketReply {
                    fitting: usize::from(self.fits(debt)),
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
