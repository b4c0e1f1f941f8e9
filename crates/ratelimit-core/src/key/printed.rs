//! The printed form of a key: reading it back, and its kind.

use crate::key::{InvalidKey, Key, is_plain, is_tag};

impl Key {
    /// The kind of the key: its tag, or the tags of its parts with a slash between them. A digest is of
    /// the kind `sha256`.
    ///
    /// It is for logs, where the key itself must not stand.
    ///
    /// ```
    /// use ratelimit_core::Key;
    ///
    /// let pair = Key::network("10.1.2.3".parse()?, 24).join(&Key::hashed("api-key", "s3cr3t")?);
    /// assert_eq!(pair.kind(), "ip/sha256");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn kind(&self) -> String {
        let tags = self.0.split('/').filter_map(|part| {
            let tag = part.split_once([':', '~']);
            tag.map(|(tag, _)| tag)
        });
        tags.collect::<Vec<_>>().join("/")
    }

    /// The key that prints `text`, as logs, responses and the list of offenders show it.
    ///
    /// ```
    /// use ratelimit_core::{InvalidKey, Key};
    ///
    /// let user = Key::tagged("user", "a/b")?;
    /// assert_eq!(Key::from_printed("user:a%2Fb"), Ok(user));
    /// assert_eq!(Key::from_printed("a/b"), Err(InvalidKey::Printed));
    /// # Ok::<(), InvalidKey>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`InvalidKey::Empty`] when `text` is empty
    /// - [`InvalidKey::Printed`] when no key prints `text`: it has no tag, or a byte that keys escape
    pub fn from_printed(text: &str) -> Result<Key, InvalidKey> {
        if text.is_empty() {
            return Err(InvalidKey::Empty);
        }
        let key = Key::from_encoded(text).filter(|_| is_printed(text));
        key.ok_or(InvalidKey::Printed)
    }
}

/// Whether every part of `text` is one that a key can have: a tag and an escaped value, a digest, or
/// the prefix length of a network.
fn is_printed(text: &str) -> bool {
    let mut before = "";
    text.split('/').all(|part| {
        let is_prefix = before.starts_with("ip:") && part.parse::<u8>().is_ok();
        before = part;
        is_prefix
            || part.strip_prefix("sha256~").is_some_and(is_digest)
            || part
                .split_once(':')
                .is_some_and(|(tag, value)| is_tag(tag) && !value.is_empty() && is_escaped(value))
    })
}

/// Whether `hex` is 64 digits as a SHA-256 digest is written.
fn is_digest(hex: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    hex.len() == 64 && hex.bytes().all(is_digit)
}

/// Whether `value` is plain, except for `%XX` of bytes that are not.
fn is_escaped(value: &str) -> bool {
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if is_plain(byte) {
            continue;
        }
        let mut digit = || {
            rest.next()
                .and_then(|byte| HEX.iter().position(|hex| *hex == byte))
        };
        let (high, low) = (digit(), digit());
        let (b'%', Some(high), Some(low)) = (byte, high, low) else {
            return false;
        };
        if u8::try_from(high << 4 | low).is_ok_and(is_plain) {
            return false;
        }
    }
    true
}

/// The digits of escapes.
const HEX: &[u8; 16] = b"0123456789ABCDEF";
