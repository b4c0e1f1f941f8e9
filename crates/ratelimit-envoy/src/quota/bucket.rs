//! The state of one bucket on one stream.

use std::time::Duration;

use ratelimit_core::Timestamp;

use crate::quota::{
    assignment::Assignment,
    grant::{Grant, GrantBudget, GrantId, Ledger, MAX_DELAY, SettledGrant},
    sizing::{DemandRate, OtherDemand, grant_size},
    terms::GrantTerms,
};

/// The longest life of a grant without a new message: a report after 5 seconds, the ways there and back, and a second.
pub(super) const MAX_TTL: Duration = Duration::from_secs(8);

/// A bucket without requests for this long is abandoned.
const MAX_IDLE: Duration = Duration::from_secs(60);

/// An Envoy that has not reported for this long gets no new grant.
const MAX_REPORT_AGE: Duration = Duration::from_secs(7);

/// The time before the end of a grant when its successor is sent.
pub(super) const ENDING: Duration = Duration::from_millis(500);

/// The shortest time between two attempts to get units.
pub(super) const MIN_RETRY: Duration = Duration::from_secs(1);

/// Versions of token buckets, which are nanoseconds.
const MAX_VERSION: u32 = 999_999_999;

/// Something that the caller does for a bucket, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaAction {
    /// Charge requests that passed without a grant, beyond the limit where needed.
    Record(u64),
    /// Give back what a grant has left, by its own receipt.
    Settle(SettledGrant),
    /// Call [`QuotaBucket::renew`] at the time when an assignment can be sent.
    Renew,
    /// Call [`QuotaBucket::look`] at the time when an assignment can be sent.
    Look,
    /// Send that the bucket is abandoned, and forget it.
    Abandon,
}

/// The next step for the assignment of a bucket. It holds for the time at which it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// Nothing is sent.
    Keep,
    /// Send an assignment.
    Send(Assignment),
    /// Read what the budget has left, and answer with [`QuotaBucket::size_grant`], [`QuotaBucket::deny`] or
    /// [`QuotaBucket::postpone`].
    Look,
}

/// A grant that was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddedGrant {
    /// The number of the grant, to keep its receipt by.
    pub id: GrantId,
    /// The grant, if its window ended in the meantime: nothing is sent, and all of it goes back.
    pub settled: Option<SettledGrant>,
    /// The assignment to send.
    pub renewal: Renewal,
}

/// The time of an answer of the store, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct AnswerTime {
    /// When the call began, by this process's clock.
    pub called_at: Timestamp,
    /// When the answer came, by this process's clock.
    pub answered_at: Timestamp,
    /// When the store decided, by its own clock.
    pub decided_at: Timestamp,
}

/// One bucket of one Envoy: its grants, its demand, and when something must be sent.
///
/// It has no clock, no socket and no store. Each method takes the time and returns the actions that follow. The rules
/// that make grants exact are in `docs/guides/envoy-quota.md`.
#[derive(Debug)]
pub struct QuotaBucket {
    terms: GrantTerms,
    pub(super) is_enforced: bool,
    /// The number of the policy, which a reload changes.
    pub(super) policy: u32,
    pub(super) rate: DemandRate,
    pub(super) ledger: Ledger,
    /// The end of the assignment that denies or allows everything, unless a grant is newer.
    pub(super) blanket_until: Option<Timestamp>,
    last_version: u32,
    /// When a report last led to a question to the store.
    pub(super) looked_at: Option<Timestamp>,
    active_at: Timestamp,
    reported_at: Timestamp,
    pub(super) wake_at: Option<Timestamp>,
}

impl QuotaBucket {
    /// A bucket that was reported for the first time.
    pub fn new(terms: GrantTerms, is_enforced: bool, now: Timestamp) -> QuotaBucket {
        QuotaBucket {
            terms,
            is_enforced,
            policy: 0,
            rate: DemandRate::default(),
            ledger: Ledger::default(),
            blanket_until: None,
            last_version: 0,
            looked_at: None,
            active_at: now,
            reported_at: now,
            wake_at: None,
        }
    }

    /// The time of the next [`wake`](Self::wake).
    pub const fn wake_at(&self) -> Option<Timestamp> {
        self.wake_at
    }

    /// When the bucket was last asked for, by its reports.
    pub const fn active_at(&self) -> Timestamp {
        self.active_at
    }

    /// The rate in thousandths of requests per second; 0 until it is known.
    pub(crate) fn milli_per_second(&self) -> u64 {
        self.rate.milli_per_second().unwrap_or(0)
    }

    /// The granted units that are neither used nor given back.
    pub(crate) fn left(&self) -> u64 {
        self.ledger.left()
    }

    /// The latest end of a grant that Envoy may have.
    pub fn grant_end(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.ledger.current(now).map(|grant| grant.ends_at)
    }

    /// Takes a report that arrived at `now`, or several of which the oldest arrived then.
    pub fn report(&mut self, now: Timestamp, allowed: u64, denied: u64) -> Vec<QuotaAction> {
        self.reported_at = now;
        let requests = allowed.saturating_add(denied);
        self.rate.report(now, requests);
        if requests > 0 {
            self.active_at = now;
        } else if now.since(self.active_at) >= MAX_IDLE {
            return vec![QuotaAction::Abandon];
        }
        let mut actions = Vec::new();
        let unassigned = self.ledger.report(allowed);
        if unassigned > 0 {
            actions.push(QuotaAction::Record(unassigned));
        }
        let settled = self.ledger.settle(now);
        actions.extend(settled.into_iter().map(QuotaAction::Settle));
        actions.push(QuotaAction::Renew);
        actions
    }

    /// Something is due: a grant ends, a window begins, or the store is asked again.
    pub fn wake(&mut self, now: Timestamp) -> Option<QuotaAction> {
        if self.wake_at.is_none_or(|at| now < at) {
            return None;
        }
        self.wake_at = None;
        // An Envoy that is alive reports every 5 seconds. One that is not gets no new grant.
        let is_alive = now.since(self.reported_at) <= MAX_REPORT_AGE;
        is_alive.then_some(QuotaAction::Look)
    }

    /// The store has `remaining` requests left: returns how many to charge.
    ///
    /// # Errors
    ///
    /// The next step, if nothing is to be charged now.
    pub fn size_grant(
        &mut self,
        time: AnswerTime,
        remaining: u64,
        others: OtherDemand,
    ) -> Result<u64, Renewal> {
        let now = time.answered_at;
        let end = self.must_end(time);
        if end.ttl(now).is_zero() {
            return Err(self.keep_or_deny(now, end.over_at.unwrap_or(now + MIN_RETRY)));
        }
        let units = grant_size(self.rate, others, remaining, end.must_end.since(now));
        let current = self.current(now);
        // A smaller grant would take away what Envoy has left.
        if current.is_some_and(|grant| units <= grant.certainly_left()) {
            match self.extend(now) {
                Renewal::Look => {}
                extended => return Err(extended),
            }
        }
        Ok(units)
    }

    /// Adds a grant of `units` requests that the store has charged.
    pub fn add_grant(&mut self, time: AnswerTime, units: u64) -> AddedGrant {
        let now = time.answered_at;
        self.last_version = self.last_version % MAX_VERSION + 1;
        let id = GrantId(self.last_version);
        let end = self.must_end(time);
        let ttl = end.ttl(now);
        if ttl.is_zero() {
            return AddedGrant {
                id,
                settled: Some(SettledGrant {
                    id,
                    units,
                    used: 0,
                    is_restored: false,
                }),
                renewal: self.deny_until(now, end.over_at.unwrap_or(now + MIN_RETRY)),
            };
        }
        let grant = Grant {
            id,
            units,
            used: 0,
            reported: 0,
            budget: GrantBudget {
                policy: self.policy,
                window_end: self.terms.window_end(time.decided_at),
                over_at: end.over_at,
            },
            must_end: end.must_end,
            ends_at: now + ttl,
            superseded_at: None,
            is_restored_by_window: self.terms.is_restored_by_window(),
        };
        self.wake_at = Some(before(grant.ends_at, ENDING));
        self.ledger.push(grant, now);
        self.blanket_until = None;
        AddedGrant {
            id,
            settled: None,
            renewal: Renewal::Send(Assignment::Grant { units, id, ttl }),
        }
    }

    /// The store has nothing left for `retry_after`.
    pub fn deny(&mut self, now: Timestamp, retry_after: Duration) -> Renewal {
        self.keep_or_deny(now, now + retry_after.max(MIN_RETRY))
    }

    /// The store did not answer: the assignment is left to its end, and the store is asked again after a second.
    pub fn postpone(&mut self, now: Timestamp) {
        self.wake_at = Some(now + MIN_RETRY);
    }

    /// The policy of the bucket has changed: it is granted anew.
    pub fn change_terms(&mut self, terms: GrantTerms, is_enforced: bool) -> QuotaAction {
        self.terms = terms;
        self.is_enforced = is_enforced;
        self.policy += 1;
        self.blanket_until = None;
        self.looked_at = None;
        QuotaAction::Renew
    }

    /// When a grant that was charged at that time must have ended at Envoy.
    fn must_end(&self, time: AnswerTime) -> GrantEnd {
        let window = self.terms.window_end(time.decided_at);
        let left = window.map(|end| end.since(time.decided_at));
        // The store decided between the question and the answer: the earlier time is the safe one.
        let window_end = left.map(|left| before(time.called_at + left, MAX_DELAY));
        let held_end = self.terms.max_hold().map(|hold| time.called_at + hold);
        let ends = [window_end, held_end].into_iter().flatten();
        GrantEnd {
            must_end: ends.min().unwrap_or(time.called_at + MAX_TTL),
            over_at: left.map(|left| time.answered_at + left),
        }
    }
}

/// The end of a grant.
struct GrantEnd {
    must_end: Timestamp,
    /// When its window is over for certain.
    over_at: Option<Timestamp>,
}

impl GrantEnd {
    /// Whole seconds, because Envoy cuts fractions off.
    fn ttl(&self, now: Timestamp) -> Duration {
        whole_seconds(self.must_end.since(now)).min(MAX_TTL)
    }
}

pub(super) const fn whole_seconds(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs())
}

pub(super) fn before(time: Timestamp, span: Duration) -> Timestamp {
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    Timestamp::from_micros(time.as_micros().saturating_sub(micros))
}
