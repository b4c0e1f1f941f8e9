//! The grants of one bucket on one stream, and which of their units were used.

use std::time::Duration;

use ratelimit_core::Timestamp;

/// The longest time that a message takes, in either direction.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(1);

/// The time after its end when a grant is settled: its last assignment may have come late, and so may the report.
const SETTLE_DELAY: Duration = Duration::from_secs(2);

/// The number of a grant. Envoy gets it as the nanoseconds of the fill interval, by which it tells token buckets apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantId(pub(crate) u32);

/// Units that were charged before they were sent.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) id: GrantId,
    /// The requests that it is for.
    pub(crate) units: u64,
    /// The requests that count as spent from it, for what is given back.
    pub(crate) used: u64,
    /// All requests that were reported since it was sent: no more can have been spent from it.
    pub(crate) reported: u64,
    /// The budget that it was charged to.
    pub(crate) budget: GrantBudget,
    /// The time after which Envoy may not use it any more, by this process's clock.
    pub(crate) must_end: Timestamp,
    /// The earliest time when Envoy's assignment ends.
    pub(crate) ends_at: Timestamp,
    /// When a later assignment was sent.
    pub(crate) superseded_at: Option<Timestamp>,
    /// Whether nothing is given back after the end of the window.
    pub(crate) is_restored_by_window: bool,
}

/// The budget of a grant: a window of a policy, or all of a policy without windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantBudget {
    /// The number of the policy: a reload begins a new one.
    pub(crate) policy: u32,
    /// The end of the window, by the store's clock.
    pub(crate) window_end: Option<Timestamp>,
    /// The same by this process's clock: certainly over from here on.
    pub(crate) over_at: Option<Timestamp>,
}

impl GrantBudget {
    fn is_same(&self, other: &GrantBudget) -> bool {
        (self.policy, self.window_end) == (other.policy, other.window_end)
    }
}

/// A grant that ended, to be settled by its own receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledGrant {
    /// Which grant.
    pub id: GrantId,
    /// The requests that it was for.
    pub units: u64,
    /// The requests that were used. The others are given back.
    pub used: u64,
    /// Whether the end of the window has restored the budget: nothing is given back then.
    pub is_restored: bool,
}

/// The grants of a bucket, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Vec<Grant>);

impl Ledger {
    /// Adds the newest grant, which takes the place of the one before.
    pub(crate) fn push(&mut self, grant: Grant, now: Timestamp) {
        self.supersede(now);
        self.0.push(grant);
    }

    /// A later assignment was sent.
    pub(crate) fn supersede(&mut self, now: Timestamp) {
        if let Some(newest) = self.0.last_mut() {
            newest.superseded_at.get_or_insert(now);
        }
    }

    /// The grant that Envoy has.
    pub(crate) fn current(&mut self, now: Timestamp) -> Option<&mut Grant> {
        let newest = self.0.last_mut();
        newest.filter(|grant| grant.superseded_at.is_none() && now < grant.ends_at)
    }

    /// Counts the requests of a report as spent, and returns those that no grant covers.
    ///
    /// Nothing tells which grant a request was spent from. The grants of one window are one budget, so the oldest goes
    /// first: what is left to use is then never given back. Each window counts the whole report, so that none is given
    /// back what was spent from it.
    pub(crate) fn report(&mut self, requests: u64) -> u64 {
        let left: u64 = self.0.iter().map(Grant::left).sum();
        let mut budget: Option<GrantBudget> = None;
        let mut rest = requests;
        for grant in &mut self.0 {
            if !budget.is_some_and(|budget| budget.is_same(&grant.budget)) {
                budget = Some(grant.budget);
                rest = requests;
            }
            let used = rest.min(grant.left());
            grant.used += used;
            grant.reported = grant.reported.saturating_add(requests);
            rest -= used;
        }
        requests.saturating_sub(left)
    }

    /// Takes out the grants that ended long enough ago. Call it with the arrival of a report that was counted.
    pub(crate) fn settle(&mut self, now: Timestamp) -> Vec<SettledGrant> {
        let settled = self
            .0
            .extract_if(.., |grant| now >= grant.ended_at() + SETTLE_DELAY);
        settled
            .map(|grant| SettledGrant {
                id: grant.id,
                units: grant.units,
                used: grant.used,
                // Under a counter a part of the window before still counts, so that is settled as any other.
                is_restored: grant.is_restored_by_window
                    && grant.budget.over_at.is_some_and(|over| now >= over),
            })
            .collect()
    }

    /// The units that are neither used nor given back.
    pub(crate) fn left(&self) -> u64 {
        self.0.iter().map(Grant::left).sum()
    }
}

impl Grant {
    fn left(&self) -> u64 {
        self.units - self.used
    }

    /// The units that Envoy certainly has left.
    pub(crate) fn certainly_left(&self) -> u64 {
        self.units.saturating_sub(self.reported)
    }

    fn ended_at(&self) -> Timestamp {
        let superseded = self.superseded_at.unwrap_or(self.ends_at);
        superseded.min(self.ends_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn grant(id: u32, units: u64, window_end: Option<u64>, ends_at: u64) -> Grant {
        let end = window_end.map(at);
        Grant {
            id: GrantId(id),
            units,
            used: 0,
            reported: 0,
            budget: GrantBudget {
                policy: 0,
                window_end: end,
                over_at: end,
            },
            must_end: at(ends_at),
            ends_at: at(ends_at),
            superseded_at: None,
            is_restored_by_window: false,
        }
    }

    fn settled(id: u32, units: u64, used: u64) -> SettledGrant {
        SettledGrant {
            id: GrantId(id),
            units,
            used,
            is_restored: false,
        }
    }

    #[test]
    fn within_a_window_what_is_left_to_use_is_not_given_back() {
        let mut ledger = Ledger::default();
        ledger.push(grant(1, 10, Some(60), 8), at(0));
        ledger.push(grant(2, 10, Some(60), 13), at(5));
        // 3 before the second grant came, 5 after it: 5 are left to use, and 2 go back.
        assert_eq!(ledger.report(8), 0);
        assert_eq!(ledger.settle(at(10)), [settled(1, 10, 8)]);
        assert_eq!(ledger.report(5), 0);
        assert_eq!(ledger.report(6), 1, "one more than was granted");
        assert_eq!(ledger.settle(at(15)), [settled(2, 10, 10)]);
    }

    #[test]
    fn each_window_counts_the_whole_report() {
        let mut ledger = Ledger::default();
        ledger.push(grant(1, 10, Some(20), 18), at(12));
        ledger.push(grant(2, 10, Some(40), 28), at(20));
        assert_eq!(ledger.report(8), 0);
        assert_eq!(ledger.settle(at(22)), [settled(1, 10, 8)]);
        ledger.supersede(at(23));
        assert_eq!(ledger.settle(at(25)), [settled(2, 10, 8)]);
    }

    #[test]
    fn a_window_that_is_over_gives_nothing_back() {
        let mut ledger = Ledger::default();
        let mut old = grant(1, 10, Some(20), 18);
        old.is_restored_by_window = true;
        ledger.push(old, at(12));
        let restored = SettledGrant {
            is_restored: true,
            ..settled(1, 10, 0)
        };
        assert_eq!(ledger.settle(at(20)), [restored]);
    }

    #[test]
    fn a_grant_is_settled_two_seconds_after_its_end() {
        let mut ledger = Ledger::default();
        ledger.push(grant(1, 10, None, 8), at(0));
        assert!(ledger.settle(at(9)).is_empty());
        assert!(ledger.current(at(8)).is_none());
        assert_eq!(ledger.settle(at(10)), [settled(1, 10, 0)]);

        ledger.push(grant(2, 10, None, 28), at(20));
        ledger.push(grant(3, 10, None, 33), at(25));
        assert!(ledger.settle(at(26)).is_empty());
        assert_eq!(ledger.settle(at(27)), [settled(2, 10, 0)]);
        assert_eq!(ledger.left(), 10);
    }
}
