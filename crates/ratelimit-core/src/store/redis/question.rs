//! A hit as a script reads it, and the script's answer as a decision.

use std::{fmt, time::Duration};

use smallvec::SmallVec;

use crate::{
    decision::{Decision, LimitDecision, Outcome},
    limit::Limit,
    policy::{MOST_LIMITS, Policy, capped, left_to_live},
    time::{MAX_EXACT, Timestamp},
};

const WRITE_NOTHING: u8 = 1;
const TIME_IS_GIVEN: u8 = 2;

const TOO_LATE: u8 = 2;

/// Bytes of a number: seven hold all that is below 2^53.
const NUMBER: usize = 7;
const ANSWER_HEAD: usize = 1 + 2 * NUMBER;
const ANSWER_LIMIT: usize = 4 * NUMBER;

/// What a script is asked.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) policy: Policy,
    pub(super) cost: u64,
    /// The time, where it is not the server's to tell.
    pub(super) now: Option<Timestamp>,
}

impl Question {
    /// The one argument of the script; its layout is described in `lua/policy_head.lua`.
    pub(super) fn argument(&self, deadline: Option<Timestamp>) -> Vec<u8> {
        let limits = self.policy.limits();
        let mut bytes = Vec::with_capacity(1 + 3 * NUMBER + limits.len() * (4 + 3 * NUMBER));
        bytes.push(self.flags());
        push(&mut bytes, self.now.unwrap_or_default().as_micros());
        push(&mut bytes, deadline.unwrap_or_default().as_micros());
        push(&mut bytes, self.cost.min(MAX_EXACT - 1));
        for limit in limits {
            let period = limit.ticks();
            bytes.push(limit.algorithm().code());
            bytes.extend_from_slice(&period.grain.micros().to_le_bytes()[..3]);
            push(&mut bytes, limit.limit());
            push(&mut bytes, period.ticks);
            push(&mut bytes, rate(limit));
        }
        bytes
    }

    fn flags(&self) -> u8 {
        let impossible = self
            .policy
            .limits()
            .iter()
            .any(|limit| self.cost > limit.limit());
        let mut flags = 0;
        if self.cost == 0 || impossible {
            flags |= WRITE_NOTHING;
        }
        if self.now.is_some() {
            flags |= TIME_IS_GIVEN;
        }
        flags
    }

    /// What the script's answer means, by the arithmetic that the memory store uses.
    pub(super) fn answer(&self, answer: &[u8]) -> Result<Answer, Nonsense> {
        let limits = self.policy.limits();
        let (head, rest) = answer.split_at_checked(ANSWER_HEAD).ok_or(Nonsense)?;
        let (&fits, times) = head.split_first().ok_or(Nonsense)?;
        let now = Timestamp::from_micros(number(times, 0));
        if fits == TOO_LATE && rest.is_empty() {
            return Ok(Answer::TooLate { now });
        }
        if fits > 1 || rest.len() != limits.len() * ANSWER_LIMIT {
            return Err(Nonsense);
        }
        let expires = Timestamp::from_micros(number(times, 1));
        let charged = if fits == 1 { self.cost } else { 0 };
        let left = if charged > 0 {
            Duration::MAX
        } else {
            left_to_live(expires, now)
        };
        let mut steps = SmallVec::<[LimitDecision; MOST_LIMITS]>::new();
        for (limit, words) in limits.iter().zip(rest.chunks_exact(ANSWER_LIMIT)) {
            let step = limit.report(words_of(words), now, self.cost, charged);
            steps.push(capped(step.ok_or(Nonsense)?, left));
        }
        let decision = Decision::of_policy(now, steps.into_iter());
        let agrees = match decision.outcome {
            Outcome::Allowed { .. } => fits == 1,
            Outcome::Denied { .. } | Outcome::Impossible => fits == 0,
        };
        if agrees {
            Ok(Answer::Decided(decision))
        } else {
            Err(Nonsense)
        }
    }
}

/// What a script answers.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "moved once, and nearly always a decision"
)]
pub(super) enum Answer {
    Decided(Decision),
    /// The deadline had passed, and nothing was done.
    TooLate {
        now: Timestamp,
    },
}

/// What the script knows as the limit's rate.
fn rate(limit: &Limit) -> u64 {
    match limit {
        Limit::TokenBucket(_) | Limit::LeakyBucket(_) => limit.per_period(),
        _ => u64::from(limit.counts_denied()),
    }
}

fn push(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes()[..NUMBER]);
}

fn words_of(bytes: &[u8]) -> [u64; 4] {
    [0, 1, 2, 3].map(|place| number(bytes, place))
}

fn number(bytes: &[u8], place: usize) -> u64 {
    let mut whole = [0; 8];
    whole[..NUMBER].copy_from_slice(&bytes[place * NUMBER..(place + 1) * NUMBER]);
    u64::from_le_bytes(whole)
}

/// The server answered with something that is no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonsense;

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server's answer is not that of a rate limit script")
    }
}

impl std::error::Error for Nonsense {}
