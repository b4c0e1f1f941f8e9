//! One hit or several on one key each: `lua/check_unrolled.lua`, the script that is called most.
//!
//! The script decides the limits of one key that are buckets, windows, counters or logs that do not count denied hits. For
//! a value that cannot be read or is ahead of the clock, it does nothing and replies [`REPLY_FALLBACK`]. The general script
//! decides then, in a second call within the same deadline.

use smallvec::SmallVec;

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::{CheckCommand, wire_rate},
        reply::{
            InvalidReply, WireReply, WireStates, collect_states, read_numbers, read_server_time,
            read_time,
        },
    },
    script::Script,
    wire::{NUMBER_BYTES, REPLY_FALLBACK, REPLY_REPLACED, read_f64, to_exact_u64, write_number},
};
use crate::{
    algorithm::WireState,
    decision::Charged,
    limit::Limit,
    policy::{EffectiveLimit, HitParams},
    time::{MAX_EXACT, Timestamp},
};

/// Bytes of a bucket's state.
const BUCKET_BYTES: u32 = 28;
/// Bytes of a fixed window's state.
const WINDOW_BYTES: u32 = 20;
/// Bytes of the state of a sliding window counter.
const COUNTER_BYTES: u32 = 36;

/// Decides equal hits on several keys.
///
/// - The hits have one cost and the same limits; their keys and policy names may differ.
/// - The hits on one key are decided as if they had come one after another. The script computes how many fit with one
///   division, and writes the key once.
/// - All hits of the call are decided at one time, `now`, and have one deadline.
/// - An error of one key is an entry of the reply and affects no other key.
pub(in crate::store::redis) struct BatchCommand<'a> {
    /// Any of the hits: they are equal but for their keys and the names of their policies.
    command: &'a CheckCommand,
    /// How many hits each key gets, in the order of the keys; 1 to 64 each.
    counts: SmallVec<[u8; 16]>,
}

/// The result of the equal hits on one key.
pub(in crate::store::redis) enum BatchEntry {
    /// The script decided.
    Limits(LimitsReply),
    /// The script did nothing for this key. Its hits are sent again, each by itself, and get the error of Redis then.
    Fallback,
    /// The numbers cannot be those of the limits: the value that is stored for the key is corrupt. Its hits fail. They
    /// are not sent again, because they may have been charged.
    Corrupt,
}

/// The states that the script found for one key. The entry of a reply is one of these:
///
/// | first number | rest of the entry | meaning |
/// |---|---|---|
/// | expires >= 0 | the states that were written, as they are stored | all hits were charged, no limit is a log, and the states before were the usual ones |
/// | -1 - n | expires, the numbers of each limit before the hits, and after them where only some fit | n hits fit and were charged, unless read only |
/// | -1 - `REPLY_REPLACED` - n | the same | the same, and their charge replaced a state of another algorithm |
/// | -1 - `REPLY_FALLBACK` | none | nothing was done for this key |
pub(in crate::store::redis) struct LimitsReply {
    /// How many of the hits fit; the first ones in the order of their arrival. A read-only hit counts if it would fit.
    fitting: usize,
    /// The expiry of the stored value after the call; 0 without a value.
    expires: Timestamp,
    /// The state of each limit before the first hit.
    states: WireStates,
    /// The states after the hits that fit, where only some do. The denied hits report these, because their waits depend
    /// on the charges before them.
    states_after: Option<WireStates>,
    /// The server's time when the script ran, or the given time.
    now: Timestamp,
    /// Whether the charge replaced a state of another algorithm.
    has_replaced: bool,
}

impl<'a> BatchCommand<'a> {
    /// The message for hits like `command`, of which each key gets as many as `counts` has for it.
    ///
    /// The hits must be [batchable](CheckCommand::is_batchable), or a single one that is [unrolled](CheckCommand::is_unrolled).
    pub(in crate::store::redis) fn new(
        command: &'a CheckCommand,
        counts: impl IntoIterator<Item = u8>,
    ) -> BatchCommand<'a> {
        let counts = counts.into_iter().collect();
        BatchCommand { command, counts }
    }

    /// The limits, which all count by one key.
    fn limits(&self) -> &'a [EffectiveLimit] {
        &self.command.groups()[0].limits
    }

    /// The debt that a hit adds to a bucket. A product beyond 2^53 belongs to an impossible hit, which is read only.
    fn price(&self, effective: &EffectiveLimit) -> u64 {
        let unit = effective.limit.period_ticks().ticks;
        self.command.params.cost.saturating_mul(unit)
    }

    /// Reads the entry of a key with `count` hits, and advances `bytes` behind it.
    fn decode_entry(
        &self,
        count: usize,
        now: Timestamp,
        bytes: &mut &[u8],
    ) -> Result<BatchEntry, InvalidReply> {
        let (first, rest) = read_f64(bytes).ok_or(InvalidReply::Malformed)?;
        *bytes = rest;
        // The sign is the shape of the entry. A written value begins with its expiry, which is not whole where the
        // value is corrupt. The rest is read all the same, so that the entries of other keys are found.
        if first >= 0.0 || first.is_nan() {
            let states = or_none(self.read_written(count, now, bytes))?;
            let (Some(states), Some(expires)) = (states, to_exact_u64(first)) else {
                return Ok(BatchEntry::Corrupt);
            };
            return Ok(BatchEntry::Limits(LimitsReply {
                fitting: count,
                expires: Timestamp::from_micros(expires),
                states,
                states_after: None,
                now,
                has_replaced: false,
            }));
        }
        let code = to_exact_u64(first.abs()).and_then(|number| number.checked_sub(1));
        let code = code.and_then(|code| u8::try_from(code).ok());
        let code = code.ok_or(InvalidReply::Malformed)?;
        if code == REPLY_FALLBACK {
            return Ok(BatchEntry::Fallback);
        }
        let has_replaced = code >= REPLY_REPLACED;
        let fitting = usize::from(code % REPLY_REPLACED);
        if fitting > count {
            return Err(InvalidReply::Malformed);
        }
        // Read to the end of the entry before any number is rejected: the entry of the next key follows.
        let expires = or_none(read_time(bytes))?;
        let states = or_none(self.command.read_states(bytes))?;
        let only_some_fit = (1..count).contains(&fitting);
        let states_after = if only_some_fit {
            or_none(self.command.read_states(bytes))?.map(Some)
        } else {
            Some(None)
        };
        let (Some(expires), Some(states), Some(states_after)) = (expires, states, states_after)
        else {
            return Ok(BatchEntry::Corrupt);
        };
        Ok(BatchEntry::Limits(LimitsReply {
            fitting,
            expires,
            states,
            states_after,
            now,
            has_replaced,
        }))
    }

    /// Reads the states of a written value, behind its expiry. They have the charges of `count` hits, which are
    /// subtracted again.
    fn read_written(
        &self,
        count: usize,
        now: Timestamp,
        bytes: &mut &[u8],
    ) -> Result<WireStates, InvalidReply> {
        let limits = self.limits().iter();
        collect_states(
            limits.map(|effective| self.read_written_state(effective, count as u64, now, bytes)),
        )
    }

    /// Reads one state of a written value, and subtracts the charges of `count` hits.
    fn read_written_state(
        &self,
        effective: &EffectiveLimit,
        count: u64,
        now: Timestamp,
        bytes: &mut &[u8],
    ) -> Result<WireState, InvalidReply> {
        let (length, rest) = bytes.split_first_chunk().ok_or(InvalidReply::Malformed)?;
        // The code of the algorithm and the grain are those that were sent.
        *bytes = rest.get(4..).ok_or(InvalidReply::Malformed)?;
        let length = u32::from_le_bytes(*length);
        let charged = self.command.params.cost.saturating_mul(count);
        let before = |spent: u64, charged: u64| {
            let before = spent.checked_sub(charged);
            before.ok_or(InvalidReply::CorruptState)
        };
        match (&effective.limit, length) {
            (Limit::TokenBucket(_) | Limit::LeakyBucket(_), BUCKET_BYTES) => {
                let [debt, _unit, _at] = read_numbers(bytes)?;
                let tick = effective.limit.period_ticks().tick(now);
                let debt = before(debt, self.price(effective).saturating_mul(count))?;
                Ok([tick, debt, 0, 0])
            }
            (Limit::FixedWindow(_), WINDOW_BYTES) => {
                let [spent, at] = read_numbers(bytes)?;
                Ok([at, before(spent, charged)?, 0, 0])
            }
            (Limit::SlidingWindowCounter(_), COUNTER_BYTES) => {
                let [prev, spent, at, _period] = read_numbers(bytes)?;
                Ok([at, prev, before(spent, charged)?, 0])
            }
            _ => Err(InvalidReply::Malformed),
        }
    }
}

impl ScriptCommand for BatchCommand<'_> {
    /// One entry for each key.
    type Output = Vec<BatchEntry>;

    fn script(&self) -> &'static Script {
        Script::check_unrolled(self.limits())
    }

    fn uses_server_clock(&self) -> bool {
        self.command.uses_server_clock()
    }

    /// The message of one hit, and the counts. They are left out for one hit each, which is the usual batch: a second
    /// argument costs the server 1,700 instructions.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let is_one_each = self.counts.iter().all(|&count| count == 1);
        let counts = (!is_one_each).then(|| self.counts.to_vec());
        let command = self.command;
        let flags = command.read_only_flag() | command.time_flag();
        let limits = self
            .limits()
            .iter()
            .map(|effective| (effective, command.params));
        let message = encode_unrolled(flags, command.now, deadline, command.params.cost, limits);
        [message].into_iter().chain(counts)
    }

    /// Reads the time, and one entry for each key in the order of `KEYS`. The time alone means that the deadline had
    /// passed.
    ///
    /// Entries have no length, so one that is malformed makes the reply malformed as a whole. A corrupt entry has the
    /// usual shape, so it affects its own key only.
    fn decode(&self, mut reply: &[u8]) -> Result<Reply<Vec<BatchEntry>>, InvalidReply> {
        let now = read_server_time(&mut reply)?;
        if reply.is_empty() {
            return Ok(Reply::TooLate(now));
        }
        let mut entries = Vec::with_capacity(self.counts.len());
        for &count in &self.counts {
            entries.push(self.decode_entry(count.into(), now, &mut reply)?);
        }
        if reply.is_empty() {
            Ok(Reply::Done(entries, now))
        } else {
            Err(InvalidReply::Malformed)
        }
    }
}

impl BatchEntry {
    /// Whether the charge replaced a state of another algorithm.
    pub(in crate::store::redis) fn has_replaced(&self) -> bool {
        matches!(self, BatchEntry::Limits(reply) if reply.has_replaced)
    }

    /// The decision for the hit `command` at `index` among those on the key, from 0. `None` for a fallback.
    ///
    /// # Errors
    ///
    /// [`InvalidReply::CorruptState`] if the stored value of the key is corrupt.
    pub(in crate::store::redis) fn decision_for(
        &self,
        index: usize,
        command: &CheckCommand,
    ) -> Result<Option<Charged>, InvalidReply> {
        match self {
            BatchEntry::Fallback => Ok(None),
            BatchEntry::Corrupt => Err(InvalidReply::CorruptState),
            BatchEntry::Limits(reply) => reply.decision(index, command).map(Some),
        }
    }
}

impl LimitsReply {
    /// The decision for the hit at `index`: the first `fitting` hits pass, each after the charges before it.
    fn decision(&self, index: usize, command: &CheckCommand) -> Result<Charged, InvalidReply> {
        let fits = index < self.fitting;
        let states_after = self.states_after.as_ref().filter(|_| !fits);
        // A denied hit starts from `states_after`, which include all charges.
        let before = if fits && command.charges() {
            command.params.cost * index as u64
        } else {
            0
        };
        let reply = command.decode_limits(WireReply {
            fits,
            now: self.now,
            expires: &[self.expires],
            states: states_after.unwrap_or(&self.states),
            before,
        })?;
        Ok(reply.charged())
    }
}

/// `ARGV[1]` of the unrolled scripts for limits with their hits, which have one cost. Numbers of 8 bytes:
///
/// | numbers | content |
/// |---|---|
/// | 1 | deadline, in microseconds; 2^53 - 1 for none |
/// | 1 | the cost of a hit |
/// | 6 for each limit | shape; code of the algorithm and 256 times the grain; limit or capacity; period in ticks; rate; reserve |
/// | 2 | flags, and now in microseconds; both left out when no flag is set |
///
/// A shape is the length of a state (4 bytes) and its code and grain (4 bytes), as in the stored value. The script compares
/// and writes it as one double, and never computes with it.
pub(in crate::store::redis) fn encode_unrolled<'l>(
    flags: u8,
    now: Option<Timestamp>,
    deadline: Option<Timestamp>,
    cost: u64,
    limits: impl Iterator<Item = (&'l EffectiveLimit, HitParams)>,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 * NUMBER_BYTES);
    write_number(
        &mut bytes,
        deadline.map_or(MAX_EXACT - 1, Timestamp::as_micros),
    );
    write_number(&mut bytes, cost.min(MAX_EXACT - 1));
    for (effective, params) in limits {
        let limit = &effective.limit;
        let period = limit.period_ticks();
        let head = u64::from(limit.algorithm().code()) + 256 * period.grain.micros();
        bytes.extend_from_slice(&state_bytes(limit).to_le_bytes());
        bytes.extend_from_slice(&head.to_le_bytes()[..4]);
        let demand = effective.demand(params);
        // A peek always fits.
        let reserve = if demand.cost == 0 { 0 } else { demand.reserve };
        let numbers = [
            head,
            limit.capacity(),
            period.ticks,
            wire_rate(limit),
            reserve,
        ];
        for number in numbers {
            write_number(&mut bytes, number);
        }
    }
    // A charge on the server's clock has no flags, and saves the server the unpacking of two numbers.
    if flags != 0 {
        write_number(&mut bytes, flags.into());
        write_number(&mut bytes, now.unwrap_or_default().as_micros());
    }
    bytes
}

/// Bytes of the state of a limit; 0 for a log, whose state has no fixed length.
const fn state_bytes(limit: &Limit) -> u32 {
    match limit {
        Limit::TokenBucket(_) | Limit::LeakyBucket(_) => BUCKET_BYTES,
        Limit::FixedWindow(_) => WINDOW_BYTES,
        Limit::SlidingWindowCounter(_) => COUNTER_BYTES,
        _ => 0,
    }
}

/// `None` where numbers are not whole. A reply of another shape stays an error.
fn or_none<T>(read: Result<T, InvalidReply>) -> Result<Option<T>, InvalidReply> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(InvalidReply::CorruptState) => Ok(None),
        Err(InvalidReply::Malformed) => Err(InvalidReply::Malformed),
    }
}
