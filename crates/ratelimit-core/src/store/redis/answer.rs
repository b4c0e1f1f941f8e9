//! What scripts answer, as numbers and as decisions.

use std::fmt;

use smallvec::SmallVec;

use super::packed::{split, whole};
use crate::{
    algorithm::Words,
    decision::{Decision, LimitDecision, Mark},
    time::Timestamp,
};

/// What the answer to a hit begins with that came after its deadline.
pub(super) const TOO_LATE: u8 = 2;

/// What a script saw of the budgets of one hit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) fits: bool,
    pub(super) now: Timestamp,
    /// When what each key has stored expires.
    pub(super) expires: &'a [Timestamp],
    pub(super) numbers: &'a [Words],
    /// What equal hits have spent since.
    pub(super) before: u64,
}

/// The numbers of each limit.
pub(super) type Numbers = SmallVec<[Words; 2]>;

/// The first byte of an answer, the time in it, and the rest.
pub(super) fn answer_head(answer: &[u8]) -> Result<(u8, Timestamp, &[u8]), Nonsense> {
    let (&status, mut rest) = answer.split_first().ok_or(Nonsense)?;
    let now = take_time(&mut rest)?;
    Ok((status, now, rest))
}

pub(super) fn take_number(bytes: &mut &[u8]) -> Result<u64, Nonsense> {
    let (number, rest) = split(bytes).ok_or(Nonsense)?;
    *bytes = rest;
    whole(number).ok_or(Nonsense)
}

pub(super) fn take_time(bytes: &mut &[u8]) -> Result<Timestamp, Nonsense> {
    take_number(bytes).map(Timestamp::from_micros)
}

/// What a script answers.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "moved once, and nearly always a decision"
)]
pub(super) enum Answer {
    Decided(Told),
    /// The deadline had passed, and nothing was done.
    TooLate {
        now: Timestamp,
    },
}

/// What the limits that were asked say.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) now: Timestamp,
    pub(super) passed: bool,
    pub(super) steps: Steps,
}

pub(super) type Steps = SmallVec<[Step; 2]>;

/// What one limit says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) place: usize,
    /// After the hit.
    pub(super) told: LimitDecision,
    /// As if the hit had spent nothing.
    pub(super) unspent: LimitDecision,
}

impl Step {
    /// The place of the limit in its policy.
    pub(super) const fn place(&self) -> usize {
        self.place
    }

    /// What giving the charge back needs to know.
    pub(super) const fn mark(&self) -> Mark {
        self.told.mark
    }

    /// What it says when the hit was given back.
    pub(super) const fn given_back(mut self) -> Step {
        self.told = self.unspent;
        self
    }
}

impl Told {
    /// The decision of a policy whose limits all have said something.
    pub(super) fn decision(mut self) -> Decision {
        self.steps.sort_unstable_by_key(|step| step.place);
        Decision::of_policy(self.now, self.steps.iter().map(|step| step.told))
    }
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
