//! Several hits in one call: `lua/check_batch.lua`, and `lua/check_bucket_batch.lua` for policies of one bucket.
//!
//! `KEYS` are the keys of the batch, each once. `ARGV[1]` is that of a single hit. `ARGV[2]` is one byte for each key:
//! its number of hits. The bucket script takes an empty `ARGV[2]` when each key has one hit.

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::CheckCommand,
        check_bucket::{BucketCommand, BucketReply},
        reply::{InvalidReply, WireReply, WireStates, read_header, read_server_time, read_time},
    },
    script::Script,
    wire::{REPLY_DONE, REPLY_FALLBACK, REPLY_TOO_LATE},
};
use crate::{decision::Decision, time::Timestamp};

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
    counts: Vec<u8>,
}

/// The result of the equal hits on one key.
pub(in crate::store::redis) enum BatchEntry {
    /// Of any limits, by the general script.
    Limits(LimitsReply),
    /// Of one bucket, by the bucket script.
    Bucket(BucketReply),
    /// The script did nothing for this key. Its hits are sent again, each by itself, and get the error of Redis then.
    Fallback,
    /// The numbers cannot be those of the limits: the value that is stored for the key is corrupt. Its hits fail. They
    /// are not sent again, because they may have been charged.
    Corrupt,
}

/// The states that the general batch script found for one key.
///
/// | bytes | content |
/// |---|---|
/// | 1 | how many of the hits fit, 0 to 64; `REPLY_FALLBACK` ends the entry |
/// | 8 | expires, in microseconds, after the call; 0 without a value |
/// | 8 for each number | the numbers of each limit before the hits |
/// | 8 for each number | the numbers after the hits that fit; only if some fit and some do not |
pub(in crate::store::redis) struct LimitsReply {
    /// How many of the hits fit; the first ones in the order of their arrival.
    fitting: usize,
    /// The expiry of the stored value after the call.
    expires: Timestamp,
    /// The state of each limit before the first hit.
    states: WireStates,
    /// The states after the hits that fit, where only some do. The denied hits report these, because their waits depend
    /// on the charges before them.
    states_after: Option<WireStates>,
}

impl<'a> BatchCommand<'a> {
    /// The message for hits like `command`, of which each key gets as many as `counts` has for it.
    pub(in crate::store::redis) const fn new(
        command: &'a CheckCommand,
        counts: Vec<u8>,
    ) -> BatchCommand<'a> {
        BatchCommand { command, counts }
    }

    /// Reads the status and the time of a reply. `None` instead of the entries if the deadline had passed.
    ///
    /// | script | header | too late |
    /// |---|---|---|
    /// | `lua/check_batch.lua` | `REPLY_DONE` (1 byte), now (8 bytes) | `REPLY_TOO_LATE`, now |
    /// | `lua/check_bucket_batch.lua` | now (8 bytes) | now alone, since a batch has at least one entry |
    fn decode_header<'r>(
        &self,
        mut reply: &'r [u8],
    ) -> Result<(Timestamp, Option<&'r [u8]>), InvalidReply> {
        if BucketCommand::new(self.command).is_some() {
            let now = read_server_time(&mut reply)?;
            return Ok((now, (!reply.is_empty()).then_some(reply)));
        }
        let (status, now, entries) = read_header(reply)?;
        match status {
            REPLY_DONE => Ok((now, Some(entries))),
            REPLY_TOO_LATE if entries.is_empty() => Ok((now, None)),
            _ => Err(InvalidReply::Malformed),
        }
    }
}

impl ScriptCommand for BatchCommand<'_> {
    /// One entry for each key.
    type Output = Vec<BatchEntry>;

    /// The bucket script for a policy of one bucket, as for a single hit.
    fn script(&self) -> &'static Script {
        match BucketCommand::new(self.command) {
            Some(_) => Script::check_bucket_batch(),
            None => Script::check_batch(self.command.groups()),
        }
    }

    fn uses_server_clock(&self) -> bool {
        self.command.uses_server_clock()
    }

    /// The message of one hit, and the counts.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let is_one_each = self.counts.iter().all(|&count| count == 1);
        match BucketCommand::new(self.command) {
            // The bucket script takes no counts for one hit each, which is the usual batch.
            Some(bucket) if is_one_each => [bucket.encode_bucket(deadline), Vec::new()],
            Some(bucket) => [bucket.encode_bucket(deadline), self.counts.clone()],
            None => [self.command.encode_check(deadline), self.counts.clone()],
        }
    }

    /// Reads the header, and one entry for each key in the order of `KEYS`.
    ///
    /// Entries have no length, so one that is malformed makes the reply malformed as a whole. A corrupt entry has the
    /// usual shape, so it affects its own key only.
    fn decode(&self, reply: &[u8]) -> Result<Reply<Vec<BatchEntry>>, InvalidReply> {
        let (now, bytes) = self.decode_header(reply)?;
        let Some(mut bytes) = bytes else {
            return Ok(Reply::TooLate(now));
        };
        let mut entries = Vec::with_capacity(self.counts.len());
        for &count in &self.counts {
            entries.push(BatchEntry::decode(self.command, count.into(), &mut bytes)?);
        }
        if bytes.is_empty() {
            Ok(Reply::Done(entries, now))
        } else {
            Err(InvalidReply::Malformed)
        }
    }
}

impl BatchEntry {
    /// Reads the entry of a key with `count` hits, and advances `bytes` behind it.
    fn decode(
        command: &CheckCommand,
        count: usize,
        bytes: &mut &[u8],
    ) -> Result<BatchEntry, InvalidReply> {
        if let Some(bucket) = BucketCommand::new(command) {
            return Ok(match or_none(bucket.decode_batch_entry(count, bytes))? {
                Some(Some(reply)) => BatchEntry::Bucket(reply),
                Some(None) => BatchEntry::Fallback,
                None => BatchEntry::Corrupt,
            });
        }
        let (&fitting, rest) = bytes.split_first().ok_or(InvalidReply::Malformed)?;
        *bytes = rest;
        if fitting == REPLY_FALLBACK {
            return Ok(BatchEntry::Fallback);
        }
        let fitting = usize::from(fitting);
        if fitting > count {
            return Err(InvalidReply::Malformed);
        }
        // Read to the end of the entry before any number is rejected: the entry of the next key follows.
        let expires = or_none(read_time(bytes))?;
        let states = or_none(command.read_states(bytes))?;
        let only_some_fit = (1..count).contains(&fitting);
        let states_after = if only_some_fit {
            or_none(command.read_states(bytes))?.map(Some)
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
        }))
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
        now: Timestamp,
    ) -> Result<Option<Decision>, InvalidReply> {
        match self {
            BatchEntry::Fallback => Ok(None),
            BatchEntry::Corrupt => Err(InvalidReply::CorruptState),
            BatchEntry::Bucket(reply) => {
                let bucket = BucketCommand::new(command).ok_or(InvalidReply::Malformed)?;
                bucket.decision(*reply, index, now).map(Some)
            }
            BatchEntry::Limits(reply) => reply.decision(index, command, now).map(Some),
        }
    }
}

impl LimitsReply {
    /// The decision for the hit at `index`: the first `fitting` hits pass, each after the charges before it.
    fn decision(
        &self,
        index: usize,
        command: &CheckCommand,
        now: Timestamp,
    ) -> Result<Decision, InvalidReply> {
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
            now,
            expires: &[self.expires],
            states: states_after.unwrap_or(&self.states),
            before,
        })?;
        Ok(reply.decision())
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
