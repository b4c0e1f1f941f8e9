//! Decimal digits of a number, without the formatting machinery.

/// The number of digits of [`u64::MAX`].
const MAX_DIGITS: usize = 20;

/// The decimal digits of a number, on the stack.
pub(crate) struct Digits {
    bytes: [u8; MAX_DIGITS],
    start: usize,
}

impl Digits {
    /// The digits of `number`.
    #[inline]
    pub(crate) fn of(number: u64) -> Digits {
        let mut bytes = [0; MAX_DIGITS];
        let mut start = MAX_DIGITS;
        let mut rest = number;
        // Two digits per division, because divisions are slow.
        while rest >= 10 {
            let pair = u8::try_from(rest % 100).unwrap_or(0);
            rest /= 100;
            start -= 2;
            bytes[start] = b'0' + pair / 10;
            bytes[start + 1] = b'0' + pair % 10;
        }
        if rest > 0 || start == MAX_DIGITS {
            start -= 1;
            bytes[start] = b'0' + u8::try_from(rest).unwrap_or(0);
        }
        Digits { bytes, start }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}
