//! Replies of the scripts: reading their numbers, and the decisions that they mean.
//!
//! The readers take `&mut &[u8]` and advance it. A reply of another shape ends the connection, but numbers that cannot
//! be true fail one key only. So every reader consumes the bytes of a number before it rejects the number.

use std::fmt;

use smallvec::SmallVec;

use crate::store::redis::wire::{read_f64, to_exact_u64};
use crate::{
    algorithm::WireState,
    budget::ChargedLimits,
    decision::{Charged, ChargedLimit, LimitDecision, RefundMark},
    time::Timestamp,
};

/// The numbers of a reply that concern one hit, before they are turned into a decision.
///
/// The reply of one hit and the entry of a batch both become this. The numbers are those
/// before the hit, and Rust adds the charge. Only a limit that records a denied hit sends the numbers after it.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct WireReply<'a> {
    /// Whether the script found that the hit fits. The decision derived from `states` must agree.
    pub(in crate::store::redis) fits: bool,
    /// The server's time when the script ran, in microseconds, or the given time.
    pub(in crate::store::redis) now: Timestamp,
    /// The expiry of the stored value of each key after the call, in the order of `KEYS`; 0 where there is no value.
    pub(in crate::store::redis) expires: &'a [Timestamp],
    /// The state of each limit, before the hits of this call, key by key and in the order of the policy.
    pub(in crate::store::redis) states: &'a [WireState],
    /// Units that earlier hits of the same batch have spent of the key since; 0 outside of batches.
    pub(in crate::store::redis) before: u64,
}

/// The state of each limit, as a reply carries it. Two fit inline, because most policies have one or two limits.
pub(in crate::store::redis) type WireStates = SmallVec<[WireState; 2]>;

/// Reads the header of a reply. Returns the status, the server's time, and the bytes behind the header.
///
/// | offset | bytes | content |
/// |---|---|---|
/// | 0 | 1 | a `REPLY_` or `SETTLED_` code, by the script |
/// | 1 | 8 | now, in microseconds |
///
/// Every script but `lua/check_unrolled.lua` begins its reply with it.
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
            // Go on reading: the bytes of the remaining numbers must be consumed.
            (Err(error), _) => numbers = Err(error),
            (Ok(_), Err(_)) => {}
        }
    }
    numbers
}

/// Collects the states of all limits. All are read even if a number of one is not whole, so that the rest of a batch
/// can be read.
pub(in crate::store::redis) fn collect_states(
    read: impl Iterator<Item = Result<WireState, InvalidReply>>,
) -> Result<WireStates, InvalidReply> {
    let mut states = Ok(WireStates::new());
    for state in read {
        match (state, &mut states) {
            (Ok(state), Ok(states)) => states.push(state),
            (Err(InvalidReply::Malformed), _) => return Err(InvalidReply::Malformed),
            (Err(error), _) => states = Err(error),
            (Ok(_), Err(_)) => {}
        }
    }
    states
}

/// Reads a time in microseconds: an expiry, which belongs to one key.
pub(in crate::store::redis) fn read_time(bytes: &mut &[u8]) -> Result<Timestamp, InvalidReply> {
    read_number(bytes).map(Timestamp::from_micros)
}

/// The decisions of the limits that one call covers, or of a member of a joint hit.
///
/// One call covers a whole policy, or the limits of one key where a cluster separates the keys. In the second case
/// `execute/cross_slot.rs` merges the replies of all keys into one.
#[derive(Debug)]
pub(in crate::store::redis) struct CheckReply {
    /// The server's time when the script ran, or the given time.
    pub(in crate::store::redis) now: Timestamp,
    /// Whether every limit of the call allows the hit. It was charged then, unless the call was read only.
    pub(in crate::store::redis) is_allowed: bool,
    /// The limits in the order of the message, key by key.
    pub(in crate::store::redis) limits: LimitReplies,
    /// Whether the charge replaced a state of another algorithm.
    pub(in crate::store::redis) has_replaced: bool,
}

/// The replies of several limits. Two fit inline.
pub(in crate::store::redis) type LimitReplies = SmallVec<[LimitReply; 2]>;

/// The decision of one limit, with and without the charge of the hit.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct LimitReply {
    /// The position of the limit in its policy, from 0, also where the call covers some of its limits only.
    pub(in crate::store::redis) index: usize,
    /// The decision after the hit, with its charge if it was allowed.
    pub(in crate::store::redis) decision: LimitDecision,
    /// The mark that a refund of the charge needs. It goes into the receipt.
    pub(in crate::store::redis) mark: RefundMark,
    /// The decision as if the hit had been charged nothing, for hits that are refunded because another key denied.
    ///
    /// Equal to `decision` where one call covers the whole policy.
    pub(in crate::store::redis) uncharged: LimitDecision,
}

impl LimitReply {
    /// The reply after the charge was refunded.
    pub(in crate::store::redis) const fn refunded(mut self) -> LimitReply {
        self.decision = self.uncharged;
        self.mark = RefundMark::NONE;
        self
    }
}

impl CheckReply {
    /// The answer of a policy, whose limits are all in the reply.
    pub(in crate::store::redis) fn charged(self) -> Charged {
        let limits = self.limits.iter().map(|limit| ChargedLimit {
            index: limit.index,
            decision: limit.decision,
            mark: limit.mark,
        });
        let mut limits: ChargedLimits = limits.collect();
        Charged::from_limits(self.now, &mut limits)
    }
}

/// Why a reply cannot be read. The hit may have been charged in either case.
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
