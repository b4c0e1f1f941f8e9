//! What a shard keeps of one key.

use super::names::NameId;
use crate::{
    decision::Charge,
    key::Key,
    policy::{Asked, Budget, Group},
    time::Timestamp,
};

/// As many stamps of a log take the room of one key.
const STAMPS_WORTH_A_KEY: usize = 8;

/// One key and what it has spent, in one line of a cache.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    pub(super) key: Key,
    pub(super) name: NameId,
    pub(super) standing: Standing,
    pub(super) budget: Budget,
}

impl Slot {
    #[inline]
    pub(super) fn weight(&self) -> usize {
        weight(&self.budget)
    }

    /// Decides a hit that leaves the key where it is queued, if it is one of the most common kind.
    #[inline(always)]
    pub(super) fn charge_at_once(
        &mut self,
        group: &Group,
        asked: Asked,
        now: Timestamp,
    ) -> Option<Charge> {
        if !self.standing.is_plain() {
            return None;
        }
        let charge = self.budget.charge_at_once(group, asked, now)?;
        self.standing = Standing::TOUCHED;
        Some(charge)
    }

    /// Marks a key whose budget was written and that may stay where it is queued; tells whether it may.
    ///
    /// To move it would be to write to its neighbours, which are seldom in the cache.
    #[inline]
    pub(super) fn is_touched(&mut self, weight_before: usize, used_up: bool) -> bool {
        let has_something_left = !used_up && !self.budget.holds_slots();
        let stays =
            self.standing.is_plain() && has_something_left && self.weight() == weight_before;
        if stays {
            self.standing = Standing::TOUCHED;
        }
        stays
    }

    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        self.budget.expires() <= now
    }

    /// Whether a key that was used up has something left again.
    pub(super) fn has_recovered(&self, now: Timestamp) -> bool {
        self.standing.recovers_at(self.budget.expires()) <= now
    }
}

/// How much of a shard's room a budget takes.
#[inline]
pub(super) fn weight(budget: &Budget) -> usize {
    1 + budget.stamps() / STAMPS_WORTH_A_KEY
}

/// In which queue a key stands, and what is known of it there.
///
/// Two numbers are those of the plain queue. All others tell how long before its budget's expiry a
/// key that is used up recovers: whole milliseconds, so that four bytes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing(u32);

impl Standing {
    /// It has something left.
    pub(super) const PLAIN: Standing = Standing(0);
    /// The same, and it was hit since it was queued.
    pub(super) const TOUCHED: Standing = Standing(1);

    /// It is used up until `recovers_at`; less than a millisecond more is reckoned with.
    pub(super) fn exhausted(recovers_at: Timestamp, expires: Timestamp) -> Standing {
        let before_expiry = expires.since(recovers_at).as_millis();
        let millis = u32::try_from(before_expiry).unwrap_or(u32::MAX);
        Standing(millis.saturating_add(2))
    }

    #[inline]
    pub(super) const fn is_plain(self) -> bool {
        self.0 <= Standing::TOUCHED.0
    }

    fn recovers_at(self, expires: Timestamp) -> Timestamp {
        let before_expiry = u64::from(self.0.saturating_sub(2)) * 1_000;
        Timestamp::from_micros(expires.as_micros().saturating_sub(before_expiry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn a_key_takes_one_line_of_a_cache() {
        assert_eq!(size_of::<Slot>(), 64);
    }

    #[test]
    fn a_used_up_key_recovers_when_it_was_told_or_a_millisecond_later() {
        let expires = Timestamp::from_secs(5_000_000);
        for told in [0, 1, 999, 4_000_000_000_000, 4_999_999_999_999] {
            let told = Timestamp::from_micros(told);
            let standing = Standing::exhausted(told, expires);
            let late = standing.recovers_at(expires).since(told).as_micros();

            assert!(!standing.is_plain());
            let reach = u128::from(u32::MAX - 2) * 1_000;
            let saturated = expires.since(told).as_micros().saturating_sub(reach);
            assert!(late < 1_000 || late <= saturated, "{late} after {told:?}");
        }
        assert_eq!(
            Standing::exhausted(expires, expires).recovers_at(expires),
            expires
        );
    }
}
