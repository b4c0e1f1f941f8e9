//! Replies of the scripts: reading their numbers, and the decisions that they mean.

use std::fmt;

use smallvec::SmallVec;

use crate::store::redis::wire::{read_f64, to_exact_u64};
use crate::{
    algorithm::WireState,
    decision::{Decision, LimitDecision, RefundMark},
    time::Timestamp,
};

/// The numbers of a reply that concern one hit, before they are turned into a decision.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct WireReply<'a> {
    /// Whether the script found that the hit fits.
    pub(in crate::store::redis) fits: bool,
    /// The server's time when the script ran.
    pub(in crate::store::redis) now: Timestamp,
    /// The expiry of the stored value of each key.
    pub(in crate::store::redis) expires: &'a [Timestamp],
    /// The state of each limit, before the hits of this call.
    pub(in crate::store::redis) states: &'a [WireState],
    /// Units that earlier hits of the same batch have spent of the key since.
    pub(in crate::store::redis) before: u64,
}

/// The state of each limit, as a reply carries it.
pub(in crate::store::redis) type WireStates = SmallVec<[WireState; 2]>;

/// Reads the header of a reply: the status code and the server's time. Returns the bytes behind it as well.
pub(in crate::store::redis) fn read_header(
    reply: &[u8],
) -> Result<(u8, Timestamp, &[u8]), InvalidReply> {
    let (&status, mut rest) = reply.split_first().ok_or(InvalidReply::Malformed)?;
    let now = read_server_time(&mut rest)?;
    Ok((status, now, rest))
}

/// Reads the server's time. It depends on no key, so a time that is not whole makes the whole reply malformed.
pub(in crate::store::redis) fn read_server_time(
    bytes: &mut &[u8],
) -> Result<Timestamp, InvalidReply> {
    read_time(bytes).or(Err(InvalidReply::Malformed))
}

/// Reads the next number. Its bytes are consumed even if it is not whole, so that the rest can be read.
pub(in crate::store::redis) fn read_number(bytes: &mut &[u8]) -> Result<u64, InvalidReply> {
    let (number, rest) = read_f64(bytes).ok_or(InvalidReply::Malformed)?;
    *bytes = rest;
    to_exact_u64(number).ok_or(InvalidReply::CorruptState)
}

/// Reads the next `N` numbers. The bytes of all are consumed even if one of them is not whole.
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

/// Reads a time in microseconds.
pub(in crate::store::redis) fn read_time(bytes: &mut &[u8]) -> Result<Timestamp, InvalidReply> {
    read_number(bytes).map(Timestamp::from_micros)
}

/// The decisions of the limits that one call covers.
#[derive(Debug)]
pub(in crate::store::redis) struct CheckReply {
    /// The server's time when the script ran.
    pub(in crate::store::redis) now: Timestamp,
    /// Whether every limit of the call allows the hit.
    pub(in crate::store::redis) is_allowed: bool,
    pub(in crate::store::redis) limits: LimitReplies,
}

pub(in crate::store::redis) type LimitReplies = SmallVec<[LimitReply; 2]>;

/// The decision of one limit, with and without the charge of the hit.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct LimitReply {
    /// The position of the limit in its policy.
    pub(in crate::store::redis) index: usize,
    /// The decision after the hit.
    pub(in crate::store::redis) decision: LimitDecision,
    /// The decision as if the hit had been charged nothing, for hits that are refunded.
    pub(in crate::store::redis) uncharged: LimitDecision,
}

impl LimitReply {
    /// The mark that a refund of the charge needs.
    pub(in crate::store::redis) const fn refund_mark(&self) -> RefundMark {
        self.decision.mark
    }

    /// The reply after the charge was refunded.
    pub(in crate::store::redis) const fn refunded(mut self) -> LimitReply {
        self.decision = self.uncharged;
        self
    }
}

impl CheckReply {
    /// The decision of a policy, whose limits are all in the reply.
    pub(in crate::store::redis) fn decision(mut self) -> Decision {
        self.limits.sort_unstable_by_key(|limit| limit.index);
        Decision::from_limits(self.now, self.limits.iter().map(|limit| limit.decision))
    }
}

/// Why a reply cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum InvalidReply {
    /// The bytes do not have the shape of a reply of our scripts. The connection is not used any more, because
    /// later replies may belong to other calls.
    Malformed,
    /// The numbers cannot be those of the limits: the value that is stored for the key is corrupt. Other keys
    /// are not affected.
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
