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
pub(super) fn answer_head(answer: &[u8]) -> Result<(u8, Timestamp, &[u8]), InvalidReply> {
    let (&status, mut rest) = answer.split_first().ok_or(InvalidReply::Malformed)?;
    let now = take_now(&mut rest)?;
    Ok((status, now, rest))
}

/// The server's time, which does not depend on any key.
pub(super) fn take_now(bytes: &mut &[u8]) -> Result<Timestamp, InvalidReply> {
    take_time(bytes).or(Err(InvalidReply::Malformed))
}

/// Takes the next number; the bytes are taken even if they are no whole number.
pub(super) fn take_number(bytes: &mut &[u8]) -> Result<u64, InvalidReply> {
    let (number, rest) = split(bytes).ok_or(InvalidReply::Malformed)?;
    *bytes = rest;
    whole(number).ok_or(InvalidReply::CorruptState)
}

/// Takes the next `N` numbers; the bytes of all are taken even if one is no whole number.
pub(super) fn take_numbers<const N: usize>(bytes: &mut &[u8]) -> Result<[u64; N], InvalidReply> {
    let mut numbers = Ok([0; N]);
    for place in 0..N {
        match (take_number(bytes), &mut numbers) {
            (Ok(number), Ok(numbers)) => numbers[place] = number,
            (Err(InvalidReply::Malformed), _) => return Err(InvalidReply::Malformed),
            (Err(error), _) => numbers = Err(error),
            (Ok(_), Err(_)) => {}
        }
    }
    numbers
}

pub(super) fn take_time(bytes: &mut &[u8]) -> Result<Timestamp, InvalidReply> {
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

/// Why a reply of the server is no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvalidReply {
    /// It does not have the shape of a reply of our scripts: whatever follows cannot be trusted either.
    Malformed,
    /// Its numbers cannot be those of the limit: the value that is stored for the key is corrupt.
    CorruptState,
}

impl fmt::Display for InvalidReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidReply::Malformed => "the server's reply is not that of a rate limit script",
            InvalidReply::CorruptState => "the value stored for the key is corrupt",
        })
    }
}

impl std::error::Error for InvalidReply {}
