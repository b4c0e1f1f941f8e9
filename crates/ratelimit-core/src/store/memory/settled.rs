//! The receipts that were settled in a memory store, so that none is settled a second time.
//!
//! They are not budgets: among these, each would be an exhausted key that evicts keys with budget.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Mutex,
    time::Duration,
};

use sha2::{Digest as _, Sha256};

use crate::{store::receipt::Receipt, sync::lock, time::Timestamp};

/// Minimum time for which a settled receipt is remembered.
const MIN_LIFE: Duration = Duration::from_secs(1);
/// Expired receipts that one settlement drops at most. With two or more, dropping outruns settling.
const DROPPED_PER_SETTLEMENT: usize = 16;
/// Estimated bytes of one receipt in both trees: 64 bytes of content, in nodes that are about two thirds full.
const RECEIPT_BYTES: usize = 110;

/// The first 128 bits of the SHA-256 digest of a receipt's bytes.
type ReceiptDigest = [u8; 16];

/// The settled receipts of a memory store, bounded by a number.
///
/// - A receipt is settled at most once, whatever the number of settlements.
/// - A settled receipt is remembered until it has expired.
/// - If more than `capacity` are remembered, the one with the oldest charge is forgotten. From then on every
///   receipt whose charge is not newer is refused, because it might be the forgotten one.
pub(crate) struct SettledReceipts {
    capacity: usize,
    inner: Mutex<SettledInner>,
}

#[derive(Default)]
struct SettledInner {
    /// By the time of the charge, with the time until which each is remembered.
    by_charge: BTreeMap<(Timestamp, ReceiptDigest), Timestamp>,
    /// The same receipts by the time until which they are remembered.
    by_end: BTreeSet<(Timestamp, Timestamp, ReceiptDigest)>,
    /// The newest charge of a forgotten receipt; `None` while none was forgotten.
    forgotten: Option<Timestamp>,
    /// Receipts that were forgotten before they had expired.
    forgotten_count: u64,
}

/// The size of the list, and what was forgotten since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SettledStats {
    pub(super) receipts: usize,
    /// Estimated.
    pub(super) bytes: usize,
    /// Receipts that were forgotten before they had expired.
    pub(super) forgotten: u64,
}

/// Whether a receipt may be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redemption {
    /// It was not settled before, and is recorded as settled now.
    First,
    /// It was settled before.
    Repeated,
    /// It may have been settled and forgotten.
    Forgotten,
}

impl SettledReceipts {
    /// An empty list for `capacity` receipts in `max_bytes` bytes.
    pub(super) fn new(capacity: usize, max_bytes: usize) -> SettledReceipts {
        SettledReceipts {
            capacity: capacity.min(max_bytes / RECEIPT_BYTES).max(1),
            inner: Mutex::default(),
        }
    }

    /// Records that a receipt is settled at `now`, and returns whether it is the first time.
    pub(super) fn redeem(&self, receipt: &Receipt, now: Timestamp) -> Redemption {
        let charge = (receipt.charged_at(), digest(receipt));
        let end = receipt.expires_at().max(now + MIN_LIFE);
        let is_expired = now >= receipt.expires_at();
        let mut inner = lock(&self.inner);
        inner.drop_expired(now);
        if inner.by_charge.contains_key(&charge) {
            return Redemption::Repeated;
        }
        // An expired receipt refunds nothing, so settling it twice changes nothing.
        if !is_expired && inner.forgotten.is_some_and(|newest| charge.0 <= newest) {
            return Redemption::Forgotten;
        }
        inner.by_charge.insert(charge, end);
        inner.by_end.insert((end, charge.0, charge.1));
        if inner.by_charge.len() > self.capacity {
            inner.forget_oldest_charge(now);
        }
        Redemption::First
    }

    /// The size of the list.
    pub(super) fn stats(&self) -> SettledStats {
        let inner = lock(&self.inner);
        let receipts = inner.by_charge.len();
        SettledStats {
            receipts,
            bytes: receipts * RECEIPT_BYTES,
            forgotten: inner.forgotten_count,
        }
    }

    /// Drops all receipts that have expired.
    pub(super) fn sweep(&self, now: Timestamp) {
        // Locked again for each step, so that a settlement never waits for all of them.
        while lock(&self.inner).drop_expired(now) == DROPPED_PER_SETTLEMENT {}
    }
}

impl SettledInner {
    /// Drops up to 16 receipts that have expired, and returns how many.
    fn drop_expired(&mut self, now: Timestamp) -> usize {
        for dropped in 0..DROPPED_PER_SETTLEMENT {
            let Some(&(end, charged_at, digest)) =
                self.by_end.first().filter(|first| first.0 <= now)
            else {
                return dropped;
            };
            self.by_end.remove(&(end, charged_at, digest));
            self.by_charge.remove(&(charged_at, digest));
        }
        DROPPED_PER_SETTLEMENT
    }

    /// Forgets the receipt with the oldest charge, and refuses receipts that are not newer from now on.
    fn forget_oldest_charge(&mut self, now: Timestamp) {
        let Some(((charged_at, digest), end)) = self.by_charge.pop_first() else {
            return;
        };
        self.by_end.remove(&(end, charged_at, digest));
        if end > now {
            self.forgotten = self.forgotten.max(Some(charged_at));
            self.forgotten_count += 1;
        }
    }
}

/// Identifies a receipt: each has exactly one form in bytes.
fn digest(receipt: &Receipt) -> ReceiptDigest {
    let full = Sha256::digest(receipt.to_bytes());
    let mut short = ReceiptDigest::default();
    for (to, from) in short.iter_mut().zip(full) {
        *to = from;
    }
    short
}

impl fmt::Debug for SettledReceipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettledReceipts")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{key::Key, policy::Policy, store::hit::Hit};

    fn receipt(name: &str, limits: &str, charged_at: u64) -> Receipt {
        let policy = Policy::parse("jobs", limits).unwrap();
        let key = Key::new(name).unwrap();
        let marks = std::iter::empty();
        let charged_at = Timestamp::from_secs(charged_at);
        Receipt::from_marks(Hit::new(&policy, &key), charged_at, marks).unwrap()
    }

    #[test]
    fn a_receipt_that_may_have_been_forgotten_is_refused() {
        let settled = SettledReceipts::new(2, usize::MAX);
        let now = Timestamp::from_secs(100);
        let charged = |at| receipt("alice", "10/d", at);
        assert_eq!(settled.redeem(&charged(10), now), Redemption::First);
        assert_eq!(settled.redeem(&charged(20), now), Redemption::First);
        assert_eq!(settled.redeem(&charged(30), now), Redemption::First);

        // 10 was forgotten. 15 was not settled, but the list cannot tell.
        assert_eq!(settled.redeem(&charged(10), now), Redemption::Forgotten);
        assert_eq!(settled.redeem(&charged(5), now), Redemption::Forgotten);
        assert_eq!(settled.redeem(&charged(15), now), Redemption::First);
        assert_eq!(settled.redeem(&charged(15), now), Redemption::Forgotten);
        assert_eq!(settled.redeem(&charged(20), now), Redemption::Repeated);
        assert_eq!(settled.stats().forgotten, 2);
    }

    #[test]
    fn receipts_that_expire_soon_are_not_refused_for_those_that_live_long() {
        let settled = SettledReceipts::new(100, usize::MAX);
        for second in 100..1_000 {
            let now = Timestamp::from_secs(second);
            let brief = receipt("alice", "10/s", second);
            assert_eq!(settled.redeem(&brief, now), Redemption::First);
            if second % 10 == 0 {
                let long = receipt("bob", "10/d", second);
                assert_eq!(settled.redeem(&long, now), Redemption::First);
            }
        }
        let stats = settled.stats();
        assert!(stats.receipts <= 100, "{stats:?}");
        assert_eq!(stats.forgotten, 0);
    }

    #[test]
    fn a_settled_receipt_is_dropped_when_it_expires() {
        let settled = SettledReceipts::new(100, usize::MAX);
        let late = receipt("alice", "fixed_window 10/min", 600);
        let expiry = late.expires_at();
        let before = Timestamp::from_micros(expiry.as_micros() - 10_000_000);
        assert_eq!(settled.redeem(&late, before), Redemption::First);
        assert_eq!(settled.redeem(&late, before), Redemption::Repeated);

        settled.sweep(expiry);

        assert_eq!(settled.stats(), SettledStats::default());
    }

    #[test]
    fn a_sweep_drops_every_expired_receipt() {
        let settled = SettledReceipts::new(1_000, usize::MAX);
        for number in 0..100 {
            let now = Timestamp::from_secs(100);
            settled.redeem(&receipt(&number.to_string(), "10/s", 100), now);
        }

        settled.sweep(Timestamp::from_secs(200));

        assert_eq!(settled.stats(), SettledStats::default());
    }
}
