//! What scripts answer, as numbers and as decisions.

use std::fmt;

use smallvec::SmallVec;

use crate::store::redis::command::number::{read_f64, to_exact_u64};
use crate::{
    algorithm::WireState,
    decision::{Decision, LimitDecision, RefundMark},
    time::Timestamp,
};

/// What the answer to a hit begins with that came after its deadline.
pub(in crate::store::redis) const REPLY_TOO_LATE: u8 = 2;

/// What a script saw of the budgets of one hit.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct WireReply<'a> {
    pub(in crate::store::redis) fits: bool,
    pub(in crate::store::redis) now: Timestamp,
    /// When what each key has stored expires.
    pub(in crate::store::redis) expires: &'a [Timestamp],
    pub(in crate::store::redis) numbers: &'a [WireState],
    /// What equal hits have spent since.
    pub(in crate::store::redis) before: u64,
}

/// The numbers of each limit.
pub(in crate::store::redis) type WireStates = SmallVec<[WireState; 2]>;

/// The first byte of an answer, the time in it, and the rest.
pub(in crate::store::redis) fn read_header(
    answer: &[u8],
) -> Result<(u8, Timestamp, &[u8]), InvalidReply> {
    let (&status, mut rest) = answer.split_first().ok_or(InvalidReply::Malformed)?;
    let now = read_server_time(&mut rest)?;
    Ok((status, now, rest))
}

/// The server's time, which does not depend on any key.
pub(in crate::store::redis) fn read_server_time(
    bytes: &mut &[u8],
) -> Result<Timestamp, InvalidReply> {
    read_time(bytes).or(Err(InvalidReply::Malformed))
}

/// Takes the next number; the bytes are taken even if they are no whole number.
pub(in crate::store::redis) fn read_number(bytes: &mut &[u8]) -> Result<u64, InvalidReply> {
    let (number, rest) = read_f64(bytes).ok_or(InvalidReply::Malformed)?;
    *bytes = rest;
    to_exact_u64(number).ok_or(InvalidReply::CorruptState)
}

/// Takes the next `N` numbers; the bytes of all are taken even if one is no whole number.
pub(in crate::store::redis) fn read_numbers<const N: usize>(
    bytes: &mut &[u8],
) -> Result<[u64; N], InvalidReply> {
    let mut numbers = Ok([0; N]);
    for index in 0..N {
        match (read_number(bytes), &mut numbers) {
            (Ok(number), Ok(numbers)) => numbers[index] = number,
            (Err(InvalidReply::Malformed), _) => return Err(InvalidReply::Malformed),
            (Err(error), _) => numbers = Err(error),
            (Ok(_), Err(_)) => {}
        }
    }
    numbers
}

pub(in crate::store::redis) fn read_time(bytes: &mut &[u8]) -> Result<Timestamp, InvalidReply> {
    read_number(bytes).map(Timestamp::from_micros)
}

/// What a script answers.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "moved once, and nearly always a decision"
)]
pub(in crate::store::redis) enum CheckAnswer {
    Decided(CheckReply),
    /// The deadline had passed, and nothing was done.
    TooLate {
        now: Timestamp,
    },
}

/// What the limits that were asked say.
#[derive(Debug)]
pub(in crate::store::redis) struct CheckReply {
    pub(in crate::store::redis) now: Timestamp,
    pub(in crate::store::redis) passed: bool,
    pub(in crate::store::redis) steps: LimitReplies,
}

pub(in crate::store::redis) type LimitReplies = SmallVec<[LimitReply; 2]>;

/// What one limit says.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct LimitReply {
    pub(in crate::store::redis) index: usize,
    /// After the hit.
    pub(in crate::store::redis) reply: LimitDecision,
    /// As if the hit had spent nothing.
    pub(in crate::store::redis) unspent: LimitDecision,
}

impl LimitReply {
    /// The place of the limit in its policy.
    pub(in crate::store::redis) const fn index(&self) -> usize {
        self.index
    }

    /// What giving the charge back needs to know.
    pub(in crate::store::redis) const fn refund_mark(&self) -> RefundMark {
        self.reply.mark
    }

    /// What it says when the hit was given back.
    pub(in crate::store::redis) const fn refunded(mut self) -> LimitReply {
        self.reply = self.unspent;
        self
    }
}

impl CheckReply {
    /// The decision of a policy whose limits all have said something.
    pub(in crate::store::redis) fn decision(mut self) -> Decision {
        self.steps.sort_unstable_by_key(|step| step.index);
        Decision::from_limits(self.now, self.steps.iter().map(|step| step.reply))
    }
}

/// Why a reply of the server is no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum InvalidReply {
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
