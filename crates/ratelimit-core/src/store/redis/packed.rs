//! Numbers as scripts pack them.

/// Bytes of a number: seven hold all that is below 2^53.
pub(super) const NUMBER: usize = 7;

pub(super) fn push(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes()[..NUMBER]);
}

/// The number at a place, of as many as the bytes hold.
pub(super) fn number(bytes: &[u8], place: usize) -> u64 {
    let mut whole = [0; 8];
    whole[..NUMBER].copy_from_slice(&bytes[place * NUMBER..(place + 1) * NUMBER]);
    u64::from_le_bytes(whole)
}
