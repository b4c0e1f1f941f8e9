//! Hits on policies that are one bucket, which have scripts of their own.

use super::{
    answer::{InvalidReply, take_now, take_numbers, take_time},
    call::Reply,
    packed::{NUMBER, push, split, whole},
    question::Question,
    said::{ODD, Said},
};
use crate::{
    algorithm::Words,
    decision::Decision,
    policy::Bound,
    time::{MAX_EXACT, Timestamp},
};

/// The bytes of a bucket's state, and of one with refunds.
const STATE: u32 = 28;
const REFUNDED_STATE: u32 = 36;
/// The bytes of all that is stored of either.
const VALUE: usize = 40;
const REFUNDED_VALUE: usize = 48;
/// The bytes of the other replies to a single hit.
const TOO_LATE_REPLY: usize = NUMBER;
const ODD_REPLY: usize = NUMBER + 1;
const DENIED_REPLY: usize = 3 * NUMBER;

/// A hit on a policy of one limit, which is a bucket.
#[derive(Clone, Copy)]
pub(super) struct OneBucket<'a> {
    pub(super) question: &'a Question,
    pub(super) bound: &'a Bound,
}

impl OneBucket<'_> {
    /// The first argument of the scripts; `lua/bucket_head.lua` describes it.
    pub(super) fn argument(&self, deadline: Option<Timestamp>) -> Vec<u8> {
        let (question, limit) = (self.question, &self.bound.limit);
        let period = limit.ticks();
        let grain = period.grain.micros();
        let mut bytes = Vec::with_capacity(9 * NUMBER);
        push(
            &mut bytes,
            deadline.map_or(MAX_EXACT - 1, Timestamp::as_micros),
        );
        push(&mut bytes, self.price());
        push(&mut bytes, self.most());
        push(&mut bytes, limit.per_period());
        push(&mut bytes, grain);
        bytes.extend_from_slice(&STATE.to_le_bytes());
        bytes.push(limit.algorithm().code());
        bytes.extend_from_slice(&grain.to_le_bytes()[..3]);
        push(&mut bytes, period.ticks);
        let flags = question.write_flag() | question.time_flag();
        if flags != 0 {
            push(&mut bytes, flags.into());
            push(&mut bytes, question.now.unwrap_or_default().as_micros());
        }
        bytes
    }

    /// The debt that a hit adds.
    fn price(&self) -> u64 {
        let unit = self.bound.limit.ticks().ticks;
        self.question.asked.cost.saturating_mul(unit)
    }

    /// The most debt that there may be with it.
    fn most(&self) -> u64 {
        let (limit, ask) = (&self.bound.limit, self.bound.ask(self.question.asked));
        // A look always fits.
        let reserve = if ask.cost == 0 { 0 } else { ask.reserve };
        limit.limit().saturating_sub(reserve) * limit.ticks().ticks
    }

    /// Reads what `lua/bucket_one.lua` answers; no decision when it has found something odd.
    pub(super) fn read(&self, answer: &[u8]) -> Result<Reply<Option<Decision>>, InvalidReply> {
        let mut rest = answer;
        let (said, now) = match answer.len() {
            TOO_LATE_REPLY => return Ok(Reply::TooLate(take_now(&mut rest)?)),
            ODD_REPLY => return Ok(Reply::Done(None, take_now(&mut rest)?)),
            VALUE | REFUNDED_VALUE => {
                let expires = take_time(&mut rest)?;
                self.charged(expires, 1, &mut rest)?
            }
            DENIED_REPLY => {
                let now = take_now(&mut rest)?;
                let [debt, expires] = take_numbers(&mut rest)?;
                let fits = debt.saturating_add(self.price()) <= self.most();
                let said = Said::Bucket {
                    fitting: usize::from(fits),
                    debt,
                    expires: Timestamp::from_micros(expires),
                    refunded: 0,
                };
                (said, now)
            }
            _ => return Err(InvalidReply::Malformed),
        };
        let decision = said.of(0, self.question, now).transpose()?;
        Ok(Reply::Done(decision, now))
    }

    /// Reads what `lua/bucket_batch.lua` says of a key with `count` hits.
    pub(super) fn read_shared(
        &self,
        count: usize,
        bytes: &mut &[u8],
    ) -> Result<Said, InvalidReply> {
        let (first, rest) = split(bytes).ok_or(InvalidReply::Malformed)?;
        *bytes = rest;
        if let Some(expires) = whole(first) {
            let expires = Timestamp::from_micros(expires);
            return Ok(self.charged(expires, count, bytes)?.0);
        }
        // Below zero, and one less than how many fit.
        let fitting = whole(first.abs()).and_then(|number| number.checked_sub(1));
        let fitting = fitting.and_then(|fitting| usize::try_from(fitting).ok());
        match fitting {
            Some(fitting) if fitting == usize::from(ODD) => Ok(Said::Odd),
            Some(fitting) if fitting <= count => {
                let [debt, expires, refunded] = take_numbers(bytes)?;
                let expires = Timestamp::from_micros(expires);
                Ok(Said::Bucket {
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
    fn charged(
        &self,
        expires: Timestamp,
        count: usize,
        bytes: &mut &[u8],
    ) -> Result<(Said, Timestamp), InvalidReply> {
        let (length, rest) = bytes.split_first_chunk().ok_or(InvalidReply::Malformed)?;
        // Code and grain.
        *bytes = rest.get(4..).ok_or(InvalidReply::Malformed)?;
        let [owed, _unit, at, refunded] = match u32::from_le_bytes(*length) {
            STATE => take_numbers(bytes).map(|[owed, unit, at]| [owed, unit, at, 0])?,
            REFUNDED_STATE => take_numbers(bytes)?,
            _ => return Err(InvalidReply::Malformed),
        };
        let added = self.price().saturating_mul(count as u64);
        let said = Said::Bucket {
            fitting: count,
            debt: owed.checked_sub(added).ok_or(InvalidReply::CorruptState)?,
            expires,
            refunded,
        };
        Ok((said, Timestamp::from_micros(at)))
    }

    /// A debt and the tokens refunded, as the numbers of the limit.
    pub(super) fn numbers(&self, now: Timestamp, debt: u64, refunded: u64) -> Words {
        [self.bound.limit.ticks().tick(now), debt, refunded, 0]
    }
}
