//! Numbers as scripts pack them: as Lua has them, which is the cheapest.

/// Bytes of a number.
pub(in crate::store::redis) const NUMBER_BYTES: usize = 8;

#[expect(
    clippy::cast_precision_loss,
    reason = "exact below 2^53, and above it only compared with what is below"
)]
pub(in crate::store::redis) fn write_number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&(number as f64).to_le_bytes());
}

/// The number that bytes begin with, and what follows.
pub(in crate::store::redis) fn read_f64(bytes: &[u8]) -> Option<(f64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((f64::from_le_bytes(*number), rest))
}

/// A number that is whole, and not below zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked before"
)]
pub(in crate::store::redis) fn to_exact_u64(number: f64) -> Option<u64> {
    let is_whole = (0.0..EXACT).contains(&number) && number.fract() == 0.0;
    is_whole.then_some(number as u64)
}

/// Numbers below this are exact.
const EXACT: f64 = 9_007_199_254_740_992.0;
