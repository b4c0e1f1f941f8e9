//! HMAC-SHA-256 (RFC 2104).

use sha2::{Digest as _, Sha256};

const BLOCK: usize = 64;

/// The HMAC of `message` under `key`.
pub(crate) fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = keyed(block.map(|byte| byte ^ 0x36), message);
    keyed(block.map(|byte| byte ^ 0x5c), &inner)
}

fn keyed(block: [u8; BLOCK], message: &[u8]) -> [u8; 32] {
    let hash = Sha256::new().chain_update(block).chain_update(message);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test cases 1, 2 and 6 of RFC 4231.
    #[test]
    fn the_published_codes_come_out() {
        let cases: [(&[u8], &[u8], &str); 3] = [
            (
                &[0x0b; 20],
                b"Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, message, expected) in cases {
            let code = hmac_sha256(key, message).map(|byte| format!("{byte:02x}"));
            assert_eq!(code.concat(), expected);
        }
    }
}
