//! The key of a budget, encoded so that different keys never collide.

mod printed;

use std::{
    fmt::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use compact_str::{CompactString, format_compact};
use sha2::{Digest, Sha256};

/// The longest encoded key, in bytes; a longer one is replaced by its digest.
const MAX_ENCODED: usize = 200;
/// The length of a fingerprint: the tag of digests and 16 hexadecimal digits.
const FINGERPRINT: usize = "sha256~".len() + 16;

/// The key whose budget a hit spends: a client, a user, an address, or several of these joined.
///
/// - A key has one or several parts, each tagged with its kind. Different parts never make equal
///   keys, whatever bytes they contain (law 11).
/// - A key is printable ASCII, at most 200 bytes long and safe in logs and stores. Bytes other than
///   `A-Z a-z 0-9 . _ : @ -` are escaped as `%XX`, so a client cannot choose a Redis Cluster hash
///   slot with braces.
/// - A key that would be longer than 200 bytes is replaced by its SHA-256 digest.
///
/// ```
/// use ratelimit_core::Key;
///
/// let user = Key::new("user:12345")?;
/// assert_eq!(user.as_str(), "key:user:12345");
///
/// let pair = Key::tagged("tenant", "a/b")?.join(&Key::tagged("user", "c")?);
/// assert_eq!(pair.as_str(), "tenant:a%2Fb/user:c");
/// # Ok::<(), ratelimit_core::InvalidKey>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(CompactString);

impl Key {
    /// A key that the application or its client names, tagged `key`.
    ///
    /// # Errors
    ///
    /// [`InvalidKey::Empty`] when `value` is empty.
    pub fn new(value: impl AsRef<[u8]>) -> Result<Key, InvalidKey> {
        Key::tagged("key", value)
    }

    /// The key of one address, tagged `ip`. An IPv4-mapped address `::ffff:a.b.c.d` has the key of
    /// `a.b.c.d`.
    ///
    /// ```
    /// use ratelimit_core::Key;
    ///
    /// assert_eq!(Key::ip("192.0.2.1".parse()?).as_str(), "ip:192.0.2.1");
    /// assert_eq!(Key::ip("::ffff:192.0.2.1".parse()?).as_str(), "ip:192.0.2.1");
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn ip(addr: IpAddr) -> Key {
        match addr.to_canonical() {
            IpAddr::V4(v4) => Key::ipv4(v4),
            IpAddr::V6(v6) => Key(format_compact!("ip:{v6}")),
        }
    }

    /// The key of the network of `addr` with a prefix of `prefix` bits, tagged `ip`.
    ///
    /// - A network of one host has the key of its address, as [`Key::ip`].
    /// - `prefix` counts the bits of the canonical address. For an IPv4 address, mapped into IPv6
    ///   or not, 32 and above is one host.
    /// - Use `/64` for IPv6 clients: a client usually has a whole `/64` to choose addresses from.
    ///
    /// ```
    /// use ratelimit_core::Key;
    ///
    /// let addr = "2001:db8:1:2::9".parse()?;
    /// assert_eq!(Key::network(addr, 64).as_str(), "ip:2001:db8:1:2::/64");
    /// assert_eq!(Key::network(addr, 128), Key::ip(addr));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[doc(alias = "CIDR")]
    #[doc(alias = "subnet")]
    pub fn network(addr: IpAddr, prefix: u8) -> Key {
        // `join` uses a slash as well. Every part of a key has a colon and a prefix length has
        // none, so that the two are distinct.
        match addr.to_canonical() {
            IpAddr::V4(v4) if prefix < 32 => {
                let host = u32::MAX >> prefix;
                let network = Ipv4Addr::from_bits(v4.to_bits() & !host);
                Key(format_compact!("ip:{network}/{prefix}"))
            }
            IpAddr::V6(v6) if prefix < 128 => {
                let host = u128::MAX >> prefix;
                let network = Ipv6Addr::from_bits(v6.to_bits() & !host);
                Key(format_compact!("ip:{network}/{prefix}"))
            }
            host => Key::ip(host),
        }
    }

    /// The key of an IPv4 address. `Display` would take 1,080 instructions more, 60 % of a request in the tower layer.
    pub(crate) fn ipv4(addr: Ipv4Addr) -> Key {
        let mut text = Aligned(*b"ip:.............................");
        let mut end = "ip:".len();
        for octet in addr.octets() {
            if octet >= 100 {
                text.0[end] = b'0' + octet / 100;
                end += 1;
            }
            if octet >= 10 {
                text.0[end] = b'0' + octet / 10 % 10;
                end += 1;
            }
            text.0[end] = b'0' + octet % 10;
            // The dot is there already.
            end += 2;
        }
        let text = str::from_utf8(&text.0).expect("digits and dots are ASCII");
        Key(CompactString::new(&text[..end - 1]))
    }

    /// A key of the kind `tag`.
    ///
    /// # Errors
    ///
    /// - [`InvalidKey::Tag`] when `tag` is not 1 to 32 bytes of `a-z 0-9 _ -`
    /// - [`InvalidKey::Empty`] when `value` is empty
    pub fn tagged(tag: &str, value: impl AsRef<[u8]>) -> Result<Key, InvalidKey> {
        let value = value.as_ref();
        if !is_tag(tag) {
            return Err(InvalidKey::Tag);
        }
        if value.is_empty() {
            return Err(InvalidKey::Empty);
        }
        let mut text = CompactString::with_capacity(tag.len() + 1 + value.len().min(MAX_ENCODED));
        text.push_str(tag);
        text.push(':');
        escape_into(&mut text, value);
        Ok(Key::bounded(text))
    }

    /// A key of the kind `tag` that contains only a SHA-256 digest of its value.
    ///
    /// Use it for secrets, such as API keys and session cookies: keys are stored, and can be
    /// printed.
    ///
    /// ```
    /// use ratelimit_core::Key;
    ///
    /// let key = Key::hashed("api-key", "s3cr3t")?;
    /// assert!(key.as_str().starts_with("sha256~"));
    /// # Ok::<(), ratelimit_core::InvalidKey>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Key::tagged`].
    #[doc(alias = "secret")]
    pub fn hashed(tag: &str, value: impl AsRef<[u8]>) -> Result<Key, InvalidKey> {
        // The tilde makes the digest differ from that of a long plain key with the same text.
        let mut text = Key::tagged(tag, value)?.0;
        text.push('~');
        Ok(Key::digest(&text))
    }

    /// The key of both parts: `self`, a slash, `other`. The order matters.
    #[must_use]
    pub fn join(&self, other: &Key) -> Key {
        let mut text = self.0.clone();
        // No encoded part contains a slash, so the boundary cannot be forged.
        text.push('/');
        text.push_str(&other.0);
        Key::bounded(text)
    }

    /// The encoded key: printable ASCII, 1 to 200 bytes.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A short name that does not show the key: the first 16 digits of its SHA-256 digest.
    ///
    /// It is for logs and pages. A reader who has the key can compute its fingerprint. It does not
    /// hide a key that can be guessed, such as an IP address: all addresses can be hashed.
    ///
    /// ```
    /// use ratelimit_core::Key;
    ///
    /// let alice = Key::new("alice")?;
    /// assert_eq!(alice.fingerprint().as_str(), "sha256~ce597ac46d430f16");
    /// # Ok::<(), ratelimit_core::InvalidKey>(())
    /// ```
    #[must_use]
    pub fn fingerprint(&self) -> Key {
        let Key(mut short) = Key::digest(&self.0);
        short.truncate(FINGERPRINT);
        Key(short)
    }

    /// The key whose encoded form is `text`, as a receipt carries it; `None` if no key encodes so.
    pub(crate) fn from_encoded(text: &str) -> Option<Key> {
        let is_encoded = |byte: u8| is_plain(byte) || matches!(byte, b'%' | b'/' | b'~');
        let fits = (1..=MAX_ENCODED).contains(&text.len()) && text.bytes().all(is_encoded);
        fits.then(|| Key(text.into()))
    }

    /// The key with this text, or its digest if the text is too long.
    fn bounded(text: CompactString) -> Key {
        if text.len() <= MAX_ENCODED {
            return Key(text);
        }
        Key::digest(&text)
    }

    /// The key `sha256~` followed by 64 digits.
    fn digest(text: &str) -> Key {
        // No other key contains a tilde, so a digest equals only a digest.
        let mut short = CompactString::const_new("sha256~");
        for byte in Sha256::digest(text.as_bytes()) {
            write!(short, "{byte:02x}").expect("a string takes all that is written");
        }
        Key(short)
    }
}

/// A buffer longer than any address. Its aligned length lets the UTF-8 check work on whole words.
#[repr(align(8))]
struct Aligned([u8; 32]);

/// Whether `tag` is 1 to 32 bytes of `a-z 0-9 _ -`.
fn is_tag(tag: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    (1..=32).contains(&tag.len()) && tag.bytes().all(allowed)
}

/// Whether `byte` stands for itself in an encoded key and in names of policies.
pub(crate) const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'@' | b'-')
}

/// Appends `value` with every byte that is not plain written as `%XX`.
fn escape_into(text: &mut CompactString, value: &[u8]) {
    // Whole runs are copied: byte by byte, the keys of four Envoy descriptors took 5,400 instructions.
    for run in value.chunk_by(|one, next| is_plain(*one) == is_plain(*next)) {
        match str::from_utf8(run) {
            Ok(plain) if is_plain(run[0]) => text.push_str(plain),
            _ => {
                for byte in run {
                    write!(text, "%{byte:02X}").expect("a string takes all that is written");
                }
            }
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<IpAddr> for Key {
    fn from(addr: IpAddr) -> Key {
        Key::ip(addr)
    }
}

/// The reason why bytes cannot be a [`Key`].
///
/// ```
/// use ratelimit_core::{InvalidKey, Key};
///
/// assert_eq!(Key::new(""), Err(InvalidKey::Empty));
/// assert_eq!(Key::tagged("User", "7"), Err(InvalidKey::Tag));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidKey {
    /// The value is empty. An empty key would make unrelated clients share one budget by accident.
    Empty,
    /// The tag is not 1 to 32 bytes of `a-z 0-9 _ -`.
    Tag,
    /// No key prints such a text.
    Printed,
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidKey::Empty => "a key cannot be empty",
            InvalidKey::Tag => "a key's tag must be 1 to 32 of a-z, 0-9, _ and -",
            InvalidKey::Printed => {
                "no key prints this text: expected a tag and a value such as user:7"
            }
        })
    }
}

debug_as_display!(InvalidKey);

impl std::error::Error for InvalidKey {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_inside_a_part_do_not_move_its_edges() {
        let one = Key::tagged("a", "x/b:y").unwrap();
        let two = Key::tagged("a", "x")
            .unwrap()
            .join(&Key::tagged("b", "y").unwrap());

        assert_ne!(one, two);
    }

    #[test]
    fn a_long_key_becomes_a_digest_that_no_short_key_equals() {
        let long = Key::new(vec![b'x'; 1 << 20]).unwrap();
        let other = Key::new(vec![b'x'; (1 << 20) + 1]).unwrap();

        assert_eq!(long.as_str().len(), "sha256~".len() + 64);
        assert_ne!(long, other);
        assert!(!Key::new(long.as_str()).unwrap().as_str().contains('~'));
    }

    #[test]
    fn braces_stars_and_control_bytes_are_escaped() {
        let key = Key::new(b"}{al*\r\n\0\xff").unwrap();

        assert_eq!(key.as_str(), "key:%7D%7Bal%2A%0D%0A%00%FF");
    }

    #[test]
    fn an_address_is_written_as_the_standard_library_does() {
        for octet in 0..=u8::MAX {
            let addr = Ipv4Addr::new(octet, 255 - octet, octet / 2, octet % 100);
            assert_eq!(Key::ip(addr.into()).as_str(), format!("ip:{addr}"));
        }
    }

    #[test]
    fn networks_of_the_same_bits_are_different_keys() {
        let addr: IpAddr = "2001:db8::".parse().unwrap();
        let keys = [32, 48, 64, 127, 128].map(|prefix| Key::network(addr, prefix));
        let texts = keys.each_ref().map(Key::as_str);

        assert_eq!(
            texts,
            [
                "ip:2001:db8::/32",
                "ip:2001:db8::/48",
                "ip:2001:db8::/64",
                "ip:2001:db8::/127",
                "ip:2001:db8::"
            ]
        );
        for key in &keys {
            assert_eq!(Key::from_encoded(key.as_str()).as_ref(), Some(key));
        }
    }

    #[test]
    fn a_printed_key_is_read_back_and_nothing_else_is() {
        let keys = [
            Key::new("}{al*\r\n\0\u{ff}").unwrap(),
            Key::tagged("user", "7").unwrap(),
            Key::hashed("api-key", "s3cr3t").unwrap(),
            Key::new("x".repeat(300)).unwrap(),
            Key::network("2001:db8::9".parse().unwrap(), 64),
            Key::network("10.1.2.3".parse().unwrap(), 8).join(&Key::new("a").unwrap()),
        ];
        for key in keys {
            assert_eq!(Key::from_printed(key.as_str()).as_ref(), Ok(&key), "{key}");
        }
        for text in [
            "acme",
            "user:",
            ":7",
            "User:7",
            "user:a b",
            "user:%41",
            "user:%2f",
            "user:%2",
            "user:7/",
            "user:7/8",
            "sha256~abc",
            "user:a~b",
        ] {
            assert_eq!(Key::from_printed(text), Err(InvalidKey::Printed), "{text}");
        }
        assert_eq!(Key::from_printed(""), Err(InvalidKey::Empty));
    }

    #[test]
    fn an_ipv4_network_is_written_with_its_prefix_unless_it_is_a_host() {
        let addr: IpAddr = "::ffff:203.0.113.7".parse().unwrap();

        assert_eq!(Key::network(addr, 0).as_str(), "ip:0.0.0.0/0");
        assert_eq!(Key::network(addr, 24).as_str(), "ip:203.0.113.0/24");
        assert_eq!(Key::network(addr, 32).as_str(), "ip:203.0.113.7");
        assert_eq!(Key::network(addr, 64).as_str(), "ip:203.0.113.7");
    }

    #[test]
    fn a_secret_is_not_shown_and_equals_no_other_key() {
        let secret = Key::hashed("api-key", "s3cr3t").unwrap();

        assert!(!secret.as_str().contains("s3cr3t"));
        assert_eq!(secret, Key::hashed("api-key", "s3cr3t").unwrap());
        assert_ne!(secret, Key::hashed("cookie", "s3cr3t").unwrap());
        assert_ne!(secret, Key::tagged("api-key", "s3cr3t").unwrap());
        assert_eq!(Key::hashed("api-key", ""), Err(InvalidKey::Empty));
    }

    #[test]
    fn empty_values_and_odd_tags_are_refused() {
        assert_eq!(Key::new(""), Err(InvalidKey::Empty));
        assert_eq!(Key::tagged("Ip:", "1"), Err(InvalidKey::Tag));
        assert_eq!(Key::tagged("", "1"), Err(InvalidKey::Tag));
    }
}
