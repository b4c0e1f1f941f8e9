//! What a script says of several hits on one key, and what that means for each.

use super::{
    answer::{Nonsense, Numbers, Seen, Told, take_time},
    question::Question,
};
use crate::time::Timestamp;

/// What a script says of a key that is not its to decide.
pub(super) const ODD: u8 = 255;

/// What a script said of equal hits on one key.
pub(super) enum Said {
    Decided {
        fitting: usize,
        expires: Timestamp,
        /// Before the first hit.
        numbers: Numbers,
        /// As those see them that do not fit, and what was spent since.
        rest: Numbers,
        before_rest: u64,
    },
    /// That it is not its to decide, and that nothing was done.
    Odd,
}

impl Said {
    /// Reads what `lua/bucket_batch.lua` or `lua/policy_batch.lua` says of a key with `count` hits.
    pub(super) fn read(
        question: &Question,
        count: usize,
        now: Timestamp,
        bytes: &mut &[u8],
    ) -> Result<Said, Nonsense> {
        let (&fitting, rest) = bytes.split_first().ok_or(Nonsense)?;
        *bytes = rest;
        if fitting == ODD {
            return Ok(Said::Odd);
        }
        let fitting = usize::from(fitting);
        if question.bucket().is_some() {
            return Said::of_bucket(question, fitting, count, now, bytes);
        }
        let expires = take_time(bytes)?;
        let numbers = question.numbers(bytes)?;
        let only_some = (1..count).contains(&fitting);
        Ok(Said::Decided {
            fitting,
            expires,
            rest: if only_some {
                question.numbers(bytes)?
            } else {
                numbers.clone()
            },
            numbers,
            before_rest: 0,
        })
    }

    /// Reads what follows when `fitting` of `count` hits on a bucket do fit.
    pub(super) fn of_bucket(
        question: &Question,
        fitting: usize,
        count: usize,
        now: Timestamp,
        bytes: &mut &[u8],
    ) -> Result<Said, Nonsense> {
        let bucket = question.bucket().ok_or(Nonsense)?;
        let numbers = bucket.numbers(now, bytes)?;
        let are_charged = fitting >= count && question.write_flag() == 0;
        let expires = if are_charged { now } else { take_time(bytes)? };
        Ok(Said::Decided {
            fitting,
            expires,
            rest: numbers.clone(),
            numbers,
            before_rest: question.asked.cost.saturating_mul(fitting as u64),
        })
    }

    /// What that means for the hit at `place` among those on the key.
    pub(super) fn of(
        &self,
        place: usize,
        question: &Question,
        now: Timestamp,
    ) -> Option<Result<Told, Nonsense>> {
        let Said::Decided {
            fitting,
            expires,
            numbers,
            rest,
            before_rest,
        } = self
        else {
            return None;
        };
        let fits = place < *fitting;
        let before = match (fits, question.spends()) {
            (true, true) => question.asked.cost * place as u64,
            (true, false) => 0,
            (false, _) => *before_rest,
        };
        Some(question.told(Seen {
            fits,
            now,
            expires: &[*expires],
            numbers: if fits { numbers } else { rest },
            before,
        }))
    }
}
