//! Hits on policies that are one bucket, which have scripts of their own.

use smallvec::smallvec;

use super::{
    answer::{Nonsense, Numbers, take_number},
    packed::{NUMBER, push},
    question::Question,
};
use crate::{
    policy::Bound,
    time::{MAX_EXACT, Timestamp},
};

/// The bytes of a bucket's state.
const STATE: u64 = 25;
/// More than any debt, and still seven bytes.
const UNPAYABLE: u64 = (1 << 56) - 1;

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
        let ask = self.bound.ask(question.asked);
        let grain = period.grain.micros();
        let shape = STATE | u64::from(limit.algorithm().code()) << 24 | grain << 32;
        // A look always fits.
        let reserve = if ask.cost == 0 { 0 } else { ask.reserve };
        let most = limit.limit().saturating_sub(reserve) * period.ticks;
        let mut bytes = Vec::with_capacity(4 + 7 * NUMBER);
        bytes.push(question.write_flag() | question.time_flag());
        push(
            &mut bytes,
            deadline.map_or(MAX_EXACT - 1, Timestamp::as_micros),
        );
        push(
            &mut bytes,
            ask.cost.saturating_mul(period.ticks).min(UNPAYABLE),
        );
        push(&mut bytes, most);
        push(&mut bytes, shape);
        push(&mut bytes, period.ticks);
        push(&mut bytes, limit.per_period());
        bytes.extend_from_slice(&grain.to_le_bytes()[..3]);
        if let Some(now) = question.now {
            push(&mut bytes, now.as_micros());
        }
        bytes
    }

    /// Reads the debt that a script found, as the numbers of the limit.
    pub(super) fn numbers(&self, now: Timestamp, bytes: &mut &[u8]) -> Result<Numbers, Nonsense> {
        let tick = self.bound.limit.ticks().tick(now);
        Ok(smallvec![[tick, take_number(bytes)?, 0, 0]])
    }
}
