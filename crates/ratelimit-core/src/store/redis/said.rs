//! What a script says of several hits on one key, and what that means for each.

use super::{
    answer::{InvalidReply, Numbers, Seen, take_time},
    question::Question,
};
use crate::{decision::Decision, time::Timestamp};

/// What a script says of a key that is not its to decide.
pub(super) const ODD: u8 = 255;

/// What a script said of equal hits on one key.
pub(super) enum Said {
    Decided(Found),
    /// Of a bucket: its debt before the first hit.
    Bucket {
        fitting: usize,
        expires: Timestamp,
        debt: u64,
        refunded: u64,
    },
    /// That it is not its to decide, and that nothing was done.
    Odd,
    /// Numbers that cannot be true: what is stored for the key is corrupt.
    Corrupt,
}

/// What a script found of any limits.
pub(super) struct Found {
    fitting: usize,
    expires: Timestamp,
    /// Before the first hit.
    numbers: Numbers,
    /// As those see them that do not fit, where others do.
    rest: Option<Numbers>,
}

impl Said {
    /// Reads what `lua/bucket_batch.lua` or `lua/policy_batch.lua` says of a key with `count` hits.
    pub(super) fn read(
        question: &Question,
        count: usize,
        bytes: &mut &[u8],
    ) -> Result<Said, InvalidReply> {
        if let Some(bucket) = question.bucket() {
            return or_corrupt(bucket.read_shared(count, bytes));
        }
        let (&fitting, rest) = bytes.split_first().ok_or(InvalidReply::Malformed)?;
        *bytes = rest;
        if fitting == ODD {
            return Ok(Said::Odd);
        }
        let fitting = usize::from(fitting);
        if fitting > count {
            return Err(InvalidReply::Malformed);
        }
        let expires = or_none(take_time(bytes))?;
        let numbers = or_none(question.numbers(bytes))?;
        let only_some = (1..count).contains(&fitting);
        let rest = if only_some {
            or_none(question.numbers(bytes))?.map(Some)
        } else {
            Some(None)
        };
        let (Some(expires), Some(numbers), Some(rest)) = (expires, numbers, rest) else {
            return Ok(Said::Corrupt);
        };
        Ok(Said::Decided(Found {
            fitting,
            expires,
            numbers,
            rest,
        }))
    }

    /// What that means for the hit at `place` among those on the key.
    pub(super) fn of(
        &self,
        place: usize,
        question: &Question,
        now: Timestamp,
    ) -> Option<Result<Decision, InvalidReply>> {
        let cost = if question.spends() {
            question.asked.cost
        } else {
            0
        };
        let decided = match self {
            Said::Odd => return None,
            Said::Corrupt => Err(InvalidReply::CorruptState),
            Said::Bucket {
                fitting,
                expires,
                debt,
                refunded,
            } => question.decided(Seen {
                fits: place < *fitting,
                now,
                expires: &[*expires],
                numbers: &[question.bucket()?.numbers(now, *debt, *refunded)],
                before: cost.saturating_mul(place.min(*fitting) as u64),
            }),
            Said::Decided(found) => {
                let fits = place < found.fitting;
                let rest = found.rest.as_ref().filter(|_| !fits);
                question.decided(Seen {
                    fits,
                    now,
                    expires: &[found.expires],
                    numbers: rest.unwrap_or(&found.numbers),
                    before: if fits { cost * place as u64 } else { 0 },
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

fn or_corrupt(said: Result<Said, InvalidReply>) -> Result<Said, InvalidReply> {
    Ok(or_none(said)?.unwrap_or(Said::Corrupt))
}
