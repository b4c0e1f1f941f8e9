//! Moments as header values, made for many responses at once.

use std::cell::RefCell;

use bytes::Bytes;
use http::HeaderValue;
use ratelimit_http::response::HeaderText;

/// Clients of one limit are reset within a few seconds or a minute of each other.
const REMEMBERED: usize = 64;

type Recent = [Option<(u64, HeaderValue)>; REMEMBERED];

thread_local! {
    static RECENT: RefCell<Recent> = const { RefCell::new([const { None }; REMEMBERED]) };
}

/// A moment in seconds of Unix time.
pub(crate) fn value(seconds: u64) -> HeaderValue {
    RECENT.with_borrow_mut(|recent| {
        let place = seconds % REMEMBERED as u64;
        let place = &mut recent[usize::try_from(place).unwrap_or(0)];
        match place {
            Some((known, value)) if *known == seconds => value.clone(),
            _ => place.insert((seconds, made(seconds))).1.clone(),
        }
    })
}

/// One allocation, also for the clones.
fn made(seconds: u64) -> HeaderValue {
    let digits = Bytes::from_owner(Digits(HeaderText::number(seconds)));
    HeaderValue::from_maybe_shared(digits).expect("digits are visible ASCII")
}

struct Digits(HeaderText);

impl AsRef<[u8]> for Digits {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_in_its_own_digits_whatever_was_told_before() {
        let moments = [0, 64, 1_800_000_000, 1_800_000_064, 0, u64::MAX];

        for moment in moments {
            assert_eq!(value(moment), moment.to_string());
            assert_eq!(value(moment), moment.to_string());
        }
    }
}
