//! A hit that the units on hand and the store pay together.

use smallvec::SmallVec;

use crate::limiter::prefetch::{age::Moment, hot_key::HotKey, slice::Slice};

/// Slices that were taken out for a hit that the store pays in part.
pub(in crate::limiter::prefetch) struct SlicesAside {
    slices: SmallVec<[Slice; 2]>,
    /// [`HotKey::losses`] at that time.
    losses: u64,
}

impl HotKey {
    /// Takes the slices out, for a hit that the store pays in part. Hits that come meanwhile do not spend them.
    pub(in crate::limiter::prefetch) fn set_aside(&mut self) -> SlicesAside {
        SlicesAside {
            slices: std::mem::take(&mut self.slices),
            losses: self.losses,
        }
    }

    /// Spends `units` of slices that were set aside, if as many are still live, and puts the slices back.
    ///
    /// After a reset the slices count no more.
    pub(in crate::limiter::prefetch) fn put_back(
        &mut self,
        aside: SlicesAside,
        units: u64,
        now: Moment,
    ) -> bool {
        let Some(at) = self.last.as_ref().map(|last| last.store_time(now)) else {
            return false;
        };
        if self.is_ended || aside.losses != self.losses {
            return false;
        }
        let mut aside = aside.slices;
        let taken_meanwhile = std::mem::take(&mut self.slices);
        std::mem::swap(&mut self.slices, &mut aside);
        let is_paid = units > 0 && self.try_spend(units, at).is_some();
        self.drop_empty(at);
        self.slices.extend(taken_meanwhile);
        // The oldest units end first anyway.
        while self.slices.len() > 2 {
            let mut oldest = self.slices.remove(0);
            self.void += oldest.unspent() + oldest.take_void();
        }
        is_paid
    }
}
