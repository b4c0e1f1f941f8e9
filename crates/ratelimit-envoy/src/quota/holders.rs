//! The holders of each budget, and what they are asked for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ratelimit_core::Timestamp;

use crate::quota::sizing::OtherDemand;

/// A holder that has not reported for this long has no part of a budget: two reports have failed to come.
const MAX_SILENCE: Duration = Duration::from_secs(11);

/// The holders of all budgets of one server, to divide what remains by demand.
///
/// Exactness does not depend on it: every unit is charged before it is granted.
#[derive(Debug, Default)]
pub struct Holders(Mutex<HashMap<Arc<str>, Vec<Holder>>>);

#[derive(Debug)]
struct Holder {
    id: u64,
    milli_per_second: u64,
    reported_at: Timestamp,
}

impl Holders {
    /// Stores the rate of a holder, and returns the demand of the others.
    pub(crate) fn report(
        &self,
        budget: &Arc<str>,
        id: u64,
        milli_per_second: u64,
        now: Timestamp,
    ) -> OtherDemand {
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let holders = budgets.entry(Arc::clone(budget)).or_default();
        let holder = Holder {
            id,
            milli_per_second,
            reported_at: now,
        };
        match holders.iter_mut().find(|holder| holder.id == id) {
            Some(known) => *known = holder,
            None => holders.push(holder),
        }
        let others = holders
            .iter()
            .filter(|other| other.id != id && now.since(other.reported_at) <= MAX_SILENCE);
        others.fold(OtherDemand::default(), |sum, other| OtherDemand {
            holders: sum.holders + 1,
            milli_per_second: sum.milli_per_second.saturating_add(other.milli_per_second),
        })
    }

    /// Forgets a holder.
    pub(crate) fn remove(&self, budget: &Arc<str>, id: u64) {
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holders) = budgets.get_mut(budget) {
            holders.retain(|holder| holder.id != id);
            if holders.is_empty() {
                budgets.remove(budget);
            }
        }
    }

    /// The number of budgets with holders.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_holders_have_no_part() {
        let (holders, budget) = (Holders::default(), Arc::from("api alice"));
        let at = Timestamp::from_secs;
        let demand = |holders, milli_per_second| OtherDemand {
            holders,
            milli_per_second,
        };
        assert_eq!(holders.report(&budget, 1, 500, at(100)), demand(0, 0));
        assert_eq!(holders.report(&budget, 2, 700, at(105)), demand(1, 500));
        assert_eq!(holders.report(&budget, 2, 900, at(111)), demand(1, 500));
        assert_eq!(holders.report(&budget, 2, 900, at(112)), demand(0, 0));
        assert_eq!(
            holders.report(&Arc::from("other"), 3, 1, at(112)),
            demand(0, 0)
        );

        holders.remove(&budget, 2);
        assert_eq!(holders.report(&budget, 1, 500, at(112)), demand(0, 0));
        holders.remove(&budget, 1);
        assert_eq!(holders.len(), 1);
    }
}
