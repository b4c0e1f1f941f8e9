//! Hash slots of Redis Cluster, by the rules of the cluster specification.

/// The number of hash slots of a cluster. Slots are numbered from 0.
pub(super) const HASH_SLOTS: u16 = 16_384;

/// The hash slot of a Redis key: that of its hash tag, the part between the first braces, or of the whole key.
///
/// An empty tag (`foo{}{bar}`) does not count, and neither does a brace that is not closed. The store uses the result
/// for three decisions: the node of a call, whether one call may use several keys, and which hits may share a batch. A
/// wrong result costs a redirection (MOVED) or a rejected call (CROSSSLOT), never a wrong budget.
pub(super) fn hash_slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let hashed = match tag {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => key,
    };
    crc16(hashed.as_bytes()) % HASH_SLOTS
}

/// CRC-16/XMODEM, which the cluster specification prescribes: polynomial 0x1021, initial value 0, most significant bit
/// first.
fn crc16(bytes: &[u8]) -> u16 {
    // Bit by bit, without a table: tags have some tens of bytes, and only hits in a cluster compute slots.
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(hash_slot("foo"), 12_182);
        assert_eq!(hash_slot("{user1000}.following"), hash_slot("user1000"));
        assert_eq!(hash_slot("foo{}{bar}"), crc16(b"foo{}{bar}") % HASH_SLOTS);
    }
}
