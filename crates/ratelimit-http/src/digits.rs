//! Decimal digits of a number, without the formatting machinery.

/// The digits of [`u64::MAX`], in groups of three.
const MAX_DIGITS: usize = 21;

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
        // Three digits per division, because divisions are slow.
        loop {
            let group = rest % 1000;
            start -= 3;
            let digits = SMALL_NUMBERS[usize::try_from(group).unwrap_or(0)];
            bytes[start..start + 3].copy_from_slice(&digits);
            rest /= 1000;
            if rest == 0 {
                start += leading_zeros(group);
                return Digits { bytes, start };
            }
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// The digits of a number below 1000, from a static table.
///
/// Fast path: header values of such numbers need no allocation. A value saves 210 instructions and an allocation, and a response
/// to a small limit has three (`cargo xtask gate`).
#[inline]
pub(crate) fn small_number(number: u64) -> Option<&'static str> {
    let index = usize::try_from(number).ok()?;
    let digits = SMALL_NUMBERS.get(index)?;
    str::from_utf8(&digits[leading_zeros(number)..]).ok()
}

/// The zeros in front of a number below 1000 in three digits. Zero itself has two.
#[inline]
const fn leading_zeros(number: u64) -> usize {
    match number {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    }
}

/// The numbers below 1000 in three digits.
static SMALL_NUMBERS: [[u8; 3]; 1000] = small_numbers();

/// Counts up in decimal digits.
const fn small_numbers() -> [[u8; 3]; 1000] {
    let mut numbers = [*b"000"; 1000];
    let mut index = 1;
    while index < numbers.len() {
        let [mut hundreds, mut tens, mut ones] = numbers[index - 1];
        ones += 1;
        if ones > b'9' {
            (tens, ones) = (tens + 1, b'0');
        }
        if tens > b'9' {
            (hundreds, tens) = (hundreds + 1, b'0');
        }
        numbers[index] = [hundreds, tens, ones];
        index += 1;
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_small_numbers_agrees_with_formatting() {
        for number in 0..1000 {
            assert_eq!(small_number(number), Some(number.to_string().as_str()));
        }
        assert_eq!(small_number(1000), None);
        assert_eq!(small_number(u64::MAX), None);
    }

    #[test]
    fn digits_agree_with_the_standard_library() {
        let powers = (0..20).map(|exponent| 10_u64.pow(exponent));
        let edges = powers.flat_map(|power| [power - 1, power, power + 1]);

        for number in edges.chain([u64::MAX]) {
            assert_eq!(Digits::of(number).as_bytes(), number.to_string().as_bytes());
        }
    }
}
