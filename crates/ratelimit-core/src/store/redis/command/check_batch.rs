//! What a script says of several hits on one key, and what that means for each.

use crate::store::redis::command::{
    check::CheckCommand,
    reply::{InvalidReply, WireReply, WireStates, read_time},
};
use crate::{decision::Decision, time::Timestamp};

/// What a script says of a key that is not its to decide.
pub(in crate::store::redis) const REPLY_FALLBACK: u8 = 255;

/// What a script said of equal hits on one key.
pub(in crate::store::redis) enum BatchEntry {
    Limits(LimitsEntry),
    /// Of a bucket: its debt before the first hit.
    Bucket {
        fitting: usize,
        expires: Timestamp,
        debt: u64,
        refunded: u64,
    },
    /// That it is not its to decide, and that nothing was done.
    Fallback,
    /// Numbers that cannot be true: what is stored for the key is corrupt.
    Corrupt,
}

/// What a script found of any limits.
pub(in crate::store::redis) struct LimitsEntry {
    fitting: usize,
    expires: Timestamp,
    /// Before the first hit.
    numbers: WireStates,
    /// As those see them that do not fit, where others do.
    rest: Option<WireStates>,
}

impl BatchEntry {
    /// Reads what `lua/bucket_batch.lua` or `lua/policy_batch.lua` says of a key with `count` hits.
    pub(in crate::store::redis) fn decode(
        command: &CheckCommand,
        count: usize,
        bytes: &mut &[u8],
    ) -> Result<BatchEntry, InvalidReply> {
        if let Some(bucket) = command.as_bucket() {
            return or_corrupt(bucket.decode_batch_entry(count, bytes));
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
        let expires = or_none(read_time(bytes))?;
        let numbers = or_none(command.read_states(bytes))?;
        let only_some = (1..count).contains(&fitting);
        let rest = if only_some {
            or_none(command.read_states(bytes))?.map(Some)
        } else {
            Some(None)
        };
        let (Some(expires), Some(numbers), Some(rest)) = (expires, numbers, rest) else {
            return Ok(BatchEntry::Corrupt);
        };
        Ok(BatchEntry::Limits(LimitsEntry {
            fitting,
            expires,
            numbers,
            rest,
        }))
    }

    /// The same entry of a bucket, with another expiry.
    pub(in crate::store::redis) fn expiring_at(mut self, at: Timestamp) -> BatchEntry {
        if let BatchEntry::Bucket { expires, .. } = &mut self {
            *expires = at;
        }
        self
    }

    /// What that means for the hit at `index` among those on the key.
    pub(in crate::store::redis) fn decision_for(
        &self,
        index: usize,
        command: &CheckCommand,
        now: Timestamp,
    ) -> Option<Result<Decision, InvalidReply>> {
        let cost = if command.charges() {
            command.params.cost
        } else {
            0
        };
        let decided = match self {
            BatchEntry::Fallback => return None,
            BatchEntry::Corrupt => Err(InvalidReply::CorruptState),
            BatchEntry::Bucket {
                fitting,
                expires,
                debt,
                refunded,
            } => command.decode_single(WireReply {
                fits: index < *fitting,
                now,
                expires: &[*expires],
                numbers: &[command.as_bucket()?.wire_state(now, *debt, *refunded)],
                before: cost.saturating_mul(index.min(*fitting) as u64),
            }),
            BatchEntry::Limits(found) => {
                let fits = index < found.fitting;
                let rest = found.rest.as_ref().filter(|_| !fits);
                command.decode_single(WireReply {
                    fits,
                    now,
                    expires: &[found.expires],
                    numbers: rest.unwrap_or(&found.numbers),
                    before: if fits { cost * index as u64 } else { 0 },
                })
            }
        };
        Some(decided)
    }
}

/// Nothing where numbers are not whole; a reply of another shape stays an error.
fn or_none<T>(read: Result<T, InvalidReply>) -> Result<Option<T>, InvalidReply> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(InvalidReply::CorruptState) => Ok(None),
        Err(InvalidReply::Malformed) => Err(InvalidReply::Malformed),
    }
}

fn or_corrupt(entries: Result<BatchEntry, InvalidReply>) -> Result<BatchEntry, InvalidReply> {
    Ok(or_none(entries)?.unwrap_or(BatchEntry::Corrupt))
}
