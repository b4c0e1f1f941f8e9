//! The form of a receipt in bytes, for applications that store it outside of the process.
//!
//! ```text
//! version u8 | origin u8 | instances u32 | cost u64 | slot u64 | charged_at u64 | expires u64
//! | count u8, then for each limit: debt u64, in version 2 also refunded u64
//! | policy: length u8, text | primary key: length u8, text
//! | count u8, then for each named key: name and key, each with a length u8
//! ```
//!
//! Numbers are big-endian, times are microseconds since the epoch.

use std::{error::Error, fmt, num::NonZeroU32};

use crate::store::receipt::{ChargedBy, MAX_LIFE, Receipt};
use crate::{
    decision::RefundMark,
    key::Key,
    key_set::{KeySet, NamedKey},
    policy::{MAX_LIMITS, Policy},
    time::Timestamp,
};

/// Version of receipts whose marks have no refunds.
///
/// - A receipt that fits into it is written so: instances of the previous release can read it.
/// - Stores identify a settled receipt by its bytes, so each receipt must have exactly one form. A
///   second form could be settled a second time.
const VERSION_WITHOUT_REFUNDS: u8 = 1;
/// Version of receipts with refunds: a charge on a bucket that had been refunded before.
const VERSION: u8 = 2;

impl Receipt {
    /// Returns the receipt as bytes, for [`Receipt::from_bytes`].
    ///
    /// - The bytes contain the key in plain text, and its policy by name without the limits.
    /// - They are not authenticated: a client that can change them can refund other charges. Seal
    ///   them, for example with an HMAC, before you hand them out. `ratelimit-server` does so.
    /// - The same receipt always gives the same bytes. [`Limiter::settle`](crate::Limiter::settle)
    ///   uses them to settle a receipt once.
    /// - Only keys that limits of the policy use are written.
    pub fn to_bytes(&self) -> Vec<u8> {
        let version = version_of(&self.marks);
        let mut bytes = vec![version];
        let (kind, instances) = match self.origin {
            ChargedBy::Store => (0, 0),
            ChargedBy::Local => (1, 0),
            ChargedBy::LocalShare { instances } => (2, instances.get()),
        };
        bytes.push(kind);
        bytes.extend(instances.to_be_bytes());
        let (charged_at, expires) = (self.charged_at.as_micros(), self.expires.as_micros());
        for number in [self.cost, self.slot, charged_at, expires] {
            bytes.extend(number.to_be_bytes());
        }
        encode_count(&mut bytes, self.marks.len());
        for mark in &self.marks {
            bytes.extend(mark.debt.to_be_bytes());
            if version == VERSION {
                bytes.extend(mark.refunded.to_be_bytes());
            }
        }
        encode_text(&mut bytes, self.policy.name());
        encode_text(&mut bytes, self.keys.primary().as_str());
        let named: Vec<&str> = self.policy.key_names().collect();
        encode_count(&mut bytes, named.len());
        for name in named {
            encode_text(&mut bytes, name);
            encode_text(&mut bytes, self.keys.get(name).as_str());
        }
        bytes
    }

    /// Reads a receipt that [`Receipt::to_bytes`] wrote. `policy` returns the policy of a name.
    ///
    /// The limits may have changed since the charge; [`Receipt`] describes what a refund credits then. The tier is
    /// that of the primary key now.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy, store::{Hit, Receipt}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let limiter = Limiter::in_memory();
    /// let policy = Policy::parse("api", "10/min")?;
    /// let alice = Key::new("alice")?;
    /// let (_, charge) = limiter.reserve(Hit::new(&policy, &alice).cost(4)).await;
    /// let bytes = charge.expect("it passed").into_receipt().to_bytes();
    ///
    /// let receipt = Receipt::from_bytes(&bytes, |name| (name == "api").then(|| policy.clone()))?;
    /// limiter.settle(&receipt, 0).await?;
    /// assert!(limiter.settle(&receipt, 0).await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`InvalidReceipt::Malformed`]: the bytes are not a receipt, or not in the one form that `to_bytes` writes.
    /// - [`InvalidReceipt::UnknownPolicy`]: `policy` returned `None`.
    pub fn from_bytes(
        bytes: &[u8],
        policy: impl FnOnce(&str) -> Option<Policy>,
    ) -> Result<Receipt, InvalidReceipt> {
        let mut reader = Decoder(bytes);
        // Trailing bytes would be a second form of the same receipt.
        let read = Decoded::from(&mut reader).filter(|_| reader.0.is_empty());
        let read = read.ok_or(InvalidReceipt::Malformed)?;
        let policy = policy(read.policy).ok_or_else(|| InvalidReceipt::UnknownPolicy {
            name: read.policy.to_owned(),
        })?;
        // The bytes name the policy and not its tier, which follows from the key.
        let policy = policy.for_key(read.keys.primary());
        Ok(Receipt {
            policy: match read.origin {
                ChargedBy::LocalShare { instances } => policy.share_of(instances),
                _ => policy.clone(),
            },
            keys: read.keys,
            cost: read.cost,
            slot: read.slot,
            charged_at: read.charged_at,
            expires: read.expires,
            origin: read.origin,
            marks: read.marks.into(),
        })
    }
}

/// The contents of the bytes, before the policy is looked up.
///
/// Texts are borrowed from the bytes. All ranges have been checked, except those that depend on the
/// policy.
struct Decoded<'a> {
    /// The store that made the charge. The bytes have a kind (0 store, 1 local, 2 share) and a
    /// number of instances.
    origin: ChargedBy,
    /// Units; above 0.
    cost: u64,
    /// The number of the charge and of its slot.
    slot: u64,
    /// Microseconds of the store's clock.
    charged_at: Timestamp,
    /// Not before `charged_at`, and at most [`MAX_LIFE`] behind it.
    expires: Timestamp,
    /// At most [`MOST_LIMITS`]. The number of limits may have changed since: missing marks refund
    /// nothing, and excess marks are ignored.
    marks: Vec<RefundMark>,
    /// The name of the policy, not of its tier.
    policy: &'a str,
    /// The primary key, and the named keys in the order in which they were written.
    keys: KeySet,
}

impl<'a> Decoded<'a> {
    /// Reads and validates everything but the policy. Trailing bytes are the caller's to reject.
    ///
    /// `None` for any deviation: the caller cannot correct it, so one error without details is
    /// enough.
    fn from(reader: &mut Decoder<'a>) -> Option<Decoded<'a>> {
        let version = reader
            .byte()
            .filter(|version| (VERSION_WITHOUT_REFUNDS..=VERSION).contains(version))?;
        let (kind, instances) = (reader.byte()?, u32::from_be_bytes(reader.take()?));
        // Earlier releases set this bit for local charges that Redis was to be charged for later.
        let kind = match kind {
            0x81 | 0x82 => kind & 0x7f,
            kind => kind,
        };
        let origin = match (kind, NonZeroU32::new(instances)) {
            // Other combinations, such as a share without instances, are never written.
            (0, None) => ChargedBy::Store,
            (1, None) => ChargedBy::Local,
            (2, Some(instances)) => ChargedBy::LocalShare { instances },
            _ => return None,
        };
        let (cost, slot) = (reader.number()?, reader.number()?);
        let (charged_at, expires) = (reader.moment()?, reader.moment()?);
        let count = usize::from(reader.byte()?);
        let marks = (0..count).map(|_| reader.mark(version));
        let marks: Vec<RefundMark> = marks.collect::<Option<_>>()?;
        let policy = reader.text()?;
        let own = reader.key()?;
        let others = usize::from(reader.byte()?);
        let named = (0..others).map(|_| Some(NamedKey::new(reader.text()?, reader.key()?)));
        let named: Vec<NamedKey> = named.collect::<Option<_>>()?;
        // A receipt in two forms could be settled twice, because stores identify it by its bytes. So the version must
        // be the smallest that fits, and the ranges are those that `Receipt::new` produces.
        let is_sound = version == version_of(&marks)
            && cost > 0
            && charged_at <= expires
            && expires.since(charged_at) <= MAX_LIFE
            && count.max(others) <= MAX_LIMITS;
        is_sound.then(|| Decoded {
            origin,
            cost,
            slot,
            charged_at,
            expires,
            marks,
            policy,
            keys: KeySet::of(&own, &named),
        })
    }
}

/// The bytes that are still to be read. Every method returns `None` when too few are left.
///
/// It allocates nothing for texts and never reads beyond the slice, so receipts from clients are safe to decode.
struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// The next `N` bytes.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// The next byte: a version, a kind or a count.
    fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    /// The next number, 8 bytes in big-endian order.
    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// A mark; version 1 has no number of refunds, which is read as 0.
    fn mark(&mut self, version: u8) -> Option<RefundMark> {
        let debt = self.number()?;
        let refunded = match version {
            VERSION_WITHOUT_REFUNDS => 0,
            _ => self.number()?,
        };
        Some(RefundMark { debt, refunded })
    }

    /// A time in microseconds, unless it is later than a [`Timestamp`] can be.
    fn moment(&mut self) -> Option<Timestamp> {
        let micros = self.number()?;
        let moment = Timestamp::from_micros(micros);
        // `from_micros` cuts off numbers beyond the range; a changed number is not what was written.
        (moment.as_micros() == micros).then_some(moment)
    }

    /// A text of up to 255 bytes, with its length before it.
    fn text(&mut self) -> Option<&'a str> {
        let length = usize::from(self.byte()?);
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        str::from_utf8(text).ok()
    }

    /// A key in its encoded form, with its tag.
    fn key(&mut self) -> Option<Key> {
        self.text().and_then(Key::from_encoded)
    }
}

/// The smallest version that can represent the marks. Writer and reader both use it, which keeps
/// the form unique.
fn version_of(marks: &[RefundMark]) -> u8 {
    if marks.iter().all(|mark| mark.refunded == 0) {
        VERSION_WITHOUT_REFUNDS
    } else {
        VERSION
    }
}

/// Writes a number of limits, or the length of a policy's name or of a key, as one byte.
///
/// # Panics
///
/// Above 255. A policy has at most eight limits, and the constructors of policies and keys bound
/// their texts.
fn encode_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.push(u8::try_from(count).expect("a policy has few limits, and its names are short"));
}

/// Writes a text with its length before it.
fn encode_text(bytes: &mut Vec<u8>, text: &str) {
    encode_count(bytes, text.len());
    bytes.extend(text.as_bytes());
}

/// Why [`Receipt::from_bytes`] failed.
///
/// ```
/// use ratelimit_core::store::{InvalidReceipt, Receipt};
///
/// let error = Receipt::from_bytes(b"not one", |_| None).unwrap_err();
/// assert_eq!(error, InvalidReceipt::Malformed);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidReceipt {
    /// The bytes are not a receipt: too short or too long, of an unknown version, or with values
    /// that are never written.
    Malformed,
    /// The policy of the receipt does not exist any more.
    UnknownPolicy {
        /// The name of the policy.
        name: String,
    },
}

impl fmt::Display for InvalidReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidReceipt::Malformed => f.write_str("not a receipt"),
            InvalidReceipt::UnknownPolicy { name } => {
                write!(f, "the policy {name} of the receipt is not known")
            }
        }
    }
}

impl Error for InvalidReceipt {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Hit;

    fn receipt() -> (Policy, Receipt) {
        let policy = Policy::parse("api", "5/min; 100/min by ip; fixed_window 9/h").unwrap();
        let home = Key::ip([192, 0, 2, 1].into());
        let keys = KeySet::new(Key::new("al ice").unwrap())
            .with("ip", home)
            .with("route", Key::new("unused").unwrap());
        let hit = Hit::for_keys(&policy, &keys).cost(3).slot(7);
        let now = Timestamp::from_secs(1_000);
        let mark = |debt| RefundMark {
            debt,
            refunded: debt * 2,
        };
        let receipt = Receipt::from_marks(hit, now, [11, 12, 13].map(mark).into_iter()).unwrap();
        (policy, receipt)
    }

    #[test]
    fn what_was_written_reads_the_same() {
        let (policy, receipt) = receipt();
        let instances = NonZeroU32::new(4).unwrap();
        for origin in [
            ChargedBy::Store,
            ChargedBy::Local,
            ChargedBy::LocalShare { instances },
        ] {
            let bytes = receipt.clone().charged_in(origin).to_bytes();

            let read = Receipt::from_bytes(&bytes, |name| {
                assert_eq!(name, "api");
                Some(policy.clone())
            });

            let read = read.unwrap();
            assert_eq!(read.to_bytes(), bytes);
            assert_eq!((read.origin, &read.marks), (origin, &receipt.marks));
            assert_eq!(read.keys.primary(), receipt.keys.primary());
            assert_eq!(read.keys.get("ip"), receipt.keys.get("ip"));
        }
    }

    #[test]
    fn no_other_bytes_are_a_receipt() {
        let (policy, receipt) = receipt();
        let bytes = receipt.to_bytes();
        let read = |bytes: &[u8]| Receipt::from_bytes(bytes, |_| Some(policy.clone()));

        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]).unwrap_err(), InvalidReceipt::Malformed);
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_err());
        assert!(read(&[&[9], &bytes[1..]].concat()).is_err());
        for index in 1..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 0x80;
            if let Ok(other) = read(&changed) {
                assert_eq!(other.to_bytes(), changed, "byte {index}");
            }
        }
    }

    #[test]
    fn a_receipt_of_the_first_version_has_marks_without_refunds() {
        let (policy, receipt) = receipt();
        let bytes = receipt.to_bytes();
        // Version, kind, instances, four numbers and a count stand before the marks.
        let marks = 2 + 4 + 4 * 8 + 1;
        let mut first = vec![1];
        first.extend(&bytes[1..marks]);
        for mark in &receipt.marks {
            first.extend(mark.debt.to_be_bytes());
        }
        first.extend(&bytes[marks + 3 * 16..]);

        let read = Receipt::from_bytes(&first, |_| Some(policy.clone())).unwrap();

        let debts = [11, 12, 13].map(RefundMark::new);
        assert_eq!(read.marks.as_slice(), debts);
        assert_eq!(read.to_bytes(), first, "stores know a receipt by its bytes");

        let mut second = vec![2];
        second.extend(&bytes[1..marks]);
        for debt in [11_u64, 12, 13] {
            second.extend([debt.to_be_bytes(), [0; 8]].concat());
        }
        second.extend(&bytes[marks + 3 * 16..]);
        let other_form = Receipt::from_bytes(&second, |_| Some(policy.clone()));
        assert_eq!(other_form.unwrap_err(), InvalidReceipt::Malformed);
    }

    #[test]
    fn a_policy_that_is_gone_is_told() {
        let (_, receipt) = receipt();

        let gone = Receipt::from_bytes(&receipt.to_bytes(), |_| None).unwrap_err();

        assert_eq!(
            gone.to_string(),
            "the policy api of the receipt is not known"
        );
    }

    #[test]
    fn a_receipt_lives_until_its_last_limit_has_forgotten_the_charge() {
        let cases = [
            ("fixed_window 5/min", 180),
            ("token_bucket 1/s burst 100", 102),
            ("5/s; sliding_window_counter 100/h", 3 * 3_600),
            ("token_bucket 1/d burst 1000000", 366 * 86_400),
        ];
        for (text, life) in cases {
            let policy = Policy::parse("p", text).unwrap();
            let key = Key::new("k").unwrap();
            let hit = Hit::new(&policy, &key);

            let receipt =
                Receipt::from_marks(hit, Timestamp::from_secs(5), [RefundMark::NONE].into_iter());

            assert_eq!(
                receipt.unwrap().expires_at(),
                Timestamp::from_secs(5 + life),
                "{text}"
            );
        }
    }
}
