//! The wire format of the scripts: numbers, and the codes that Rust and Lua share.
//!
//! `lua/README.md` has the codes in one table. The scripts use them by the names of [`CODES`], which
//! [`Script`](crate::store::redis::script::Script) replaces by their values when it assembles a script, so a
//! name costs the server nothing and cannot have two values.
//!
//! - Numbers are little-endian doubles of 8 bytes, whole and below 2^53. Flags, codes, counts, lengths and grains are
//!   unsigned integers of 1 to 4 bytes, except in `lua/check_unrolled.lua`, where flags are a double.
//! - Messages and replies have no padding and no version. A new layout needs a new script, whose hash EVALSHA names, so
//!   instances of two releases never read each other's messages.
//! - Stored values do outlive a release. A release must read the values of the one before it.

/// The hit does not fit. First byte of a reply of `lua/check.lua`.
pub(super) const REPLY_DENIED: u8 = 0;
/// The hit fits, and was charged unless the call was read only. First byte of a reply of the same script.
pub(super) const REPLY_ALLOWED: u8 = 1;
/// The deadline had passed. The script read and wrote no key, so the call may be sent again.
///
/// `lua/prelude.lua` returns it for every general script. `lua/check_unrolled.lua` returns the time alone instead.
pub(super) const REPLY_TOO_LATE: u8 = 2;
/// First byte of a reply of `lua/reset.lua`.
///
/// It has the value of [`REPLY_DENIED`]. The two never meet, because the command determines the script.
pub(super) const REPLY_DONE: u8 = 0;
/// The script did nothing for this key, which needs the general script and a call of its own.
///
/// In a batch it takes the place of the number of hits that fit, so it must exceed the size of any batch.
pub(super) const REPLY_FALLBACK: u8 = 255;

/// Added to the number of hits that fit where their charge replaced a state of another algorithm. No batch has so many.
pub(super) const REPLY_REPLACED: u8 = 128;
/// The member of a joint hit fits.
pub(super) const MEMBER_FITS: u8 = 1;
/// The member of a joint hit replaced a state of another algorithm.
pub(super) const MEMBER_REPLACED: u8 = 2;

/// The first byte of a tail, which is the code of no algorithm.
const TAIL_CODE: u8 = 0;
/// Bytes of a tail, without its length.
const TAIL_LENGTH: u8 = 18;

/// Give units back.
pub(super) const SETTLE_REFUND: u8 = 1;
/// Charge further units, as far as the budget has room for them.
pub(super) const SETTLE_CHARGE: u8 = 2;
/// Release the slot of a concurrency limit.
pub(super) const SETTLE_RELEASE: u8 = 3;
/// Extend the lease of a slot to a whole lease from now.
pub(super) const SETTLE_RENEW: u8 = 4;
/// Charge hits that the local fallback let pass; the marks are the units of each limit.
pub(super) const SETTLE_CATCH_UP: u8 = 5;

/// Give units back, whichever hits spent them.
pub(super) const SETTLE_CREDIT: u8 = 6;

/// The settlement changed nothing.
pub(super) const SETTLED_UNCHANGED: u8 = 0;
/// The settlement changed at least one limit.
pub(super) const SETTLED_APPLIED: u8 = 1;
/// The slot to be renewed is not held any more.
pub(super) const SETTLED_LEASE_LOST: u8 = 2;

/// Every member of this role must fit.
pub(super) const JOINT_MUST: u8 = 0;
/// One member of this role must fit, if there are any.
pub(super) const JOINT_ANY: u8 = 1;
/// The member never denies the joint hit.
pub(super) const JOINT_WATCH: u8 = 2;

/// Every code by its name in the scripts.
///
/// A code that is missing here stays a global name in the script, which Redis rejects when it runs.
pub(super) const CODES: [(&str, u8); 22] = [
    ("REPLY_DENIED", REPLY_DENIED),
    ("REPLY_ALLOWED", REPLY_ALLOWED),
    ("REPLY_TOO_LATE", REPLY_TOO_LATE),
    ("REPLY_DONE", REPLY_DONE),
    ("REPLY_FALLBACK", REPLY_FALLBACK),
    ("REPLY_REPLACED", REPLY_REPLACED),
    ("MEMBER_FITS", MEMBER_FITS),
    ("MEMBER_REPLACED", MEMBER_REPLACED),
    ("TAIL_CODE", TAIL_CODE),
    ("TAIL_LENGTH", TAIL_LENGTH),
    ("SETTLE_REFUND", SETTLE_REFUND),
    ("SETTLE_CHARGE", SETTLE_CHARGE),
    ("SETTLE_RELEASE", SETTLE_RELEASE),
    ("SETTLE_RENEW", SETTLE_RENEW),
    ("SETTLE_CATCH_UP", SETTLE_CATCH_UP),
    ("SETTLE_CREDIT", SETTLE_CREDIT),
    ("SETTLED_UNCHANGED", SETTLED_UNCHANGED),
    ("SETTLED_APPLIED", SETTLED_APPLIED),
    ("SETTLED_LEASE_LOST", SETTLED_LEASE_LOST),
    ("JOINT_MUST", JOINT_MUST),
    ("JOINT_ANY", JOINT_ANY),
    ("JOINT_WATCH", JOINT_WATCH),
];

/// Bytes of a number in a message, a reply and a stored value.
pub(super) const NUMBER_BYTES: usize = 8;

/// Doubles below this hold whole numbers exactly: 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Appends a number as a little-endian double, which is the type of a Lua number and the cheapest to unpack.
///
/// Numbers of 2^53 and more are rounded. Callers either cut them to 2^53 - 1 or send them for comparison only.
#[expect(
    clippy::cast_precision_loss,
    reason = "exact below 2^53, and above it only compared with what is below"
)]
pub(super) fn write_number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&(number as f64).to_le_bytes());
}

/// The double at the start of `bytes`, and the bytes behind it. `None` if fewer than 8 bytes are left.
pub(super) fn read_f64(bytes: &[u8]) -> Option<(f64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((f64::from_le_bytes(*number), rest))
}

/// The number as an integer, if it is whole, not negative and below 2^53. NaN and infinities are not.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked before"
)]
pub(super) fn to_exact_u64(number: f64) -> Option<u64> {
    let is_whole = (0.0..EXACT).contains(&number) && number.fract() == 0.0;
    is_whole.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_scripts_page_has_every_code() {
        let page = include_str!("../../../lua/README.md");

        for (name, code) in CODES {
            assert!(page.contains(&format!("| `{name}` | {code} |")), "{name}");
        }
    }
}
