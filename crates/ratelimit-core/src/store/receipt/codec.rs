//! A receipt as bytes, for whoever has to keep it outside of the process.

use std::{error::Error, fmt, num::NonZeroU32};

use crate::store::receipt::{ChargedBy, LONGEST_LIFE, Receipt};
use crate::{
    decision::RefundMark,
    key::Key,
    key_set::{KeySet, NamedKey},
    policy::{MOST_LIMITS, Policy},
    time::Timestamp,
};

/// Marks without refunds. A receipt that needs no more is written so: instances of the release before
/// read it, and stores know a receipt by its bytes.
const VERSION_WITHOUT_REFUNDS: u8 = 1;
const VERSION: u8 = 2;

impl Receipt {
    /// The receipt as bytes, for [`Receipt::from_bytes`].
    ///
    /// They name its key, and whoever can change them can have other charges given back: seal them
    /// before they leave your hands.
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

    /// Reads a receipt that [`Receipt::to_bytes`] wrote; `policy` finds the policy of that name.
    ///
    /// Limits may have changed since: what was charged under other ones stays charged.
    ///
    /// ```
    /// use ratelimit_core::{Hit, Key, Limiter, Policy, Receipt};
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
    /// When the bytes are no receipt, or there is no such policy.
    pub fn from_bytes(
        bytes: &[u8],
        policy: impl FnOnce(&str) -> Option<Policy>,
    ) -> Result<Receipt, InvalidReceipt> {
        let mut reader = Decoder(bytes);
        let read = Decoded::from(&mut reader).filter(|_| reader.0.is_empty());
        let read = read.ok_or(InvalidReceipt::Malformed)?;
        let policy = policy(read.policy).ok_or_else(|| InvalidReceipt::UnknownPolicy {
            name: read.policy.to_owned(),
        })?;
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

/// What bytes say, before the policy is known.
struct Decoded<'a> {
    origin: ChargedBy,
    cost: u64,
    slot: u64,
    charged_at: Timestamp,
    expires: Timestamp,
    marks: Vec<RefundMark>,
    policy: &'a str,
    keys: KeySet,
}

impl<'a> Decoded<'a> {
    fn from(reader: &mut Decoder<'a>) -> Option<Decoded<'a>> {
        let version = reader
            .byte()
            .filter(|version| (VERSION_WITHOUT_REFUNDS..=VERSION).contains(version))?;
        let (kind, instances) = (reader.byte()?, u32::from_be_bytes(reader.take()?));
        let origin = match (kind, NonZeroU32::new(instances)) {
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
        // Each receipt has one form, or it could be settled once in each.
        let is_sound = version == version_of(&marks)
            && cost > 0
            && charged_at <= expires
            && expires.since(charged_at) <= LONGEST_LIFE
            && count.max(others) <= MOST_LIMITS;
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

/// Bytes that are still to be read.
struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn mark(&mut self, version: u8) -> Option<RefundMark> {
        let debt = self.number()?;
        let refunded = match version {
            VERSION_WITHOUT_REFUNDS => 0,
            _ => self.number()?,
        };
        Some(RefundMark { debt, refunded })
    }

    fn moment(&mut self) -> Option<Timestamp> {
        let micros = self.number()?;
        let moment = Timestamp::from_micros(micros);
        (moment.as_micros() == micros).then_some(moment)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::from(self.byte()?);
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        str::from_utf8(text).ok()
    }

    fn key(&mut self) -> Option<Key> {
        self.text().and_then(Key::from_encoded)
    }
}

fn version_of(marks: &[RefundMark]) -> u8 {
    if marks.iter().all(|mark| mark.refunded == 0) {
        VERSION_WITHOUT_REFUNDS
    } else {
        VERSION
    }
}

fn encode_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.push(u8::try_from(count).expect("a policy has few limits, and its names are short"));
}

fn encode_text(bytes: &mut Vec<u8>, text: &str) {
    encode_count(bytes, text.len());
    bytes.extend(text.as_bytes());
}

/// Why bytes are no [`Receipt`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidReceipt {
    /// They are not what a receipt is written as.
    Malformed,
    /// There is no policy of that name.
    UnknownPolicy {
        /// The name.
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
