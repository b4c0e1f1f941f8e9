//! Hits on policies that are one bucket, which have scripts of their own.

use super::{
    answer::{Nonsense, take_number, take_time},
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
    pub(super) fn read(&self, answer: &[u8]) -> Result<Reply<Option<Decision>>, Nonsense> {
        let mut rest = answer;
        let first = take_time(&mut rest)?;
        let (said, now) = match rest {
            [] => return Ok(Reply::TooLate(first)),
            [ODD] => return Ok(Reply::Done(None, first)),
            _ if matches!(answer.len(), VALUE | REFUNDED_VALUE) => {
                self.charged(first, 1, &mut rest)?
            }
            _ => {
                let debt = take_number(&mut rest)?;
                let fits = debt.saturating_add(self.price()) <= self.most();
                let said = Said::Bucket {
                    fitting: usize::from(fits),
                    debt,
                    expires: take_time(&mut rest)?,
                    refunded: 0,
                };
                (said, first)
            }
        };
        if !rest.is_empty() {
            return Err(Nonsense);
        }
        let decision = said.of(0, self.question, now).transpose()?;
        Ok(Reply::Done(decision, now))
    }

    /// Reads what `lua/bucket_batch.lua` says of a key with `count` hits.
    pub(super) fn read_shared(&self, count: usize, bytes: &mut &[u8]) -> Result<Said, Nonsense> {
        let (first, rest) = split(bytes).ok_or(Nonsense)?;
        *bytes = rest;
        if let Some(expires) = whole(first) {
            let expires = Timestamp::from_micros(expires);
            return Ok(self.charged(expires, count, bytes)?.0);
        }
        // Below zero, and one less than how many fit.
        let fitting = whole(first.abs()).and_then(|number| number.checked_sub(1));
        let fitting = fitting.ok_or(Nonsense)?;
        if fitting == u64::from(ODD) {
            return Ok(Said::Odd);
        }
        Ok(Said::Bucket {
            fitting: usize::try_from(fitting).or(Err(Nonsense))?,
            debt: take_number(bytes)?,
            expires: take_time(bytes)?,
            refunded: take_number(bytes)?,
        })
    }

    /// Reads what follows `expires` in a value that was written for `count` hits, and when that was.
    fn charged(
        &self,
        expires: Timestamp,
        count: usize,
        bytes: &mut &[u8],
    ) -> Result<(Said, Timestamp), Nonsense> {
        let (length, rest) = bytes.split_first_chunk().ok_or(Nonsense)?;
        let length = u32::from_le_bytes(*length);
        // Code and grain.
        *bytes = rest.get(4..).ok_or(Nonsense)?;
        let [owed, _unit, at] = [
            take_number(bytes)?,
            take_number(bytes)?,
            take_number(bytes)?,
        ];
        let refunded = match length {
            STATE => 0,
            REFUNDED_STATE => take_number(bytes)?,
            _ => return Err(Nonsense),
        };
        let added = self.price().saturating_mul(count as u64);
        let said = Said::Bucket {
            fitting: count,
            debt: owed.checked_sub(added).ok_or(Nonsense)?,
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
