//! The state of one bucket on one stream.

use std::time::Duration;

use ratelimit_core::Timestamp;

use crate::quota::{
    assignment::Assignment,
    grant::{Grant, GrantId, Ledger, MAX_DELAY, Pool, SettledGrant},
    sizing::{DemandRate, OtherDemand, grant_size},
    terms::GrantTerms,
};

/// The longest life of a grant without a new message: a report after 5 seconds, the ways there and back, and a second.
const MAX_TTL: Duration = Duration::from_secs(8);

/// An extension must reach the report after the next one.
const MIN_EXTENSION: Duration = Duration::from_secs(6);

/// A bucket without requests for this long is abandoned.
const MAX_IDLE: Duration = Duration::from_secs(60);

/// An Envoy that has not reported for this long gets no new grant.
const MAX_SILENCE: Duration = Duration::from_secs(7);

/// The time before the end of a grant when its successor is sent.
const ENDING: Duration = Duration::from_millis(500);

/// The time that a denial outlives the moment when units are expected.
const DENIAL_RESERVE: Duration = Duration::from_secs(2);

/// The shortest time between two attempts to get units.
const MIN_RETRY: Duration = Duration::from_secs(1);

/// The life of an assignment without a limit, for keys that the policy does not enforce.
const UNENFORCED_TTL: Duration = Duration::from_secs(60);

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
    /// Read what the budget has left, and answer with [`QuotaBucket::looked`] or one of the other answers of the store.
    Look,
    /// Send an assignment.
    Assign(Assignment),
    /// Send that the bucket is abandoned, and forget it.
    Abandon,
}

/// The time of an answer of the store, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct AnswerTime {
    /// When the call began, by this process's clock.
    pub asked_at: Timestamp,
    /// When the answer came, by this process's clock.
    pub answered_at: Timestamp,
    /// When the store decided, by its own clock.
    pub decided_at: Timestamp,
}

/// One bucket of one Envoy: its grants, its demand, and when something must be sent.
///
/// It has no clock, no socket and no store. Each method takes the time and returns the actions that follow. The rules
/// that make grants exact are in `docs/envoy-quota.md`.
#[derive(Debug)]
pub struct QuotaBucket {
    terms: GrantTerms,
    is_enforced: bool,
    /// The number of the policy, which a reload changes.
    policy: u32,
    rate: DemandRate,
    ledger: Ledger,
    /// The end of the assignment that denies or allows everything, unless a grant is newer.
    blanket_until: Option<Timestamp>,
    last_version: u32,
    active_at: Timestamp,
    reported_at: Timestamp,
    wake_at: Option<Timestamp>,
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
    pub(crate) fn milli(&self) -> u64 {
        self.rate.milli().unwrap_or(0)
    }

    /// The granted units that are neither used nor given back.
    pub(crate) fn left(&self) -> u64 {
        self.ledger.left()
    }

    /// The latest end of a grant that Envoy may have.
    pub fn grant_end(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.ledger.current(now).map(|grant| grant.ends_at)
    }

    /// Takes a report that arrived at `now`.
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
        actions.extend(self.renew(now));
        actions
    }

    /// Keeps or extends the grant that Envoy has, or asks for another.
    fn renew(&mut self, now: Timestamp) -> Option<QuotaAction> {
        if !self.is_enforced {
            return self.allow_all(now);
        }
        let (expected, policy) = (self.rate.expected(), self.policy);
        let current = self.ledger.current(now);
        let current = current.filter(|grant| grant.pool.policy == policy);
        if current.is_some_and(|grant| grant.certainly_left() >= expected)
            && let Some(extension) = self.extend(now)
        {
            return extension;
        }
        Some(QuotaAction::Look)
    }

    /// Extends the grant that Envoy has: `Some(None)` if nothing needs to be sent, `None` if it cannot be kept.
    ///
    /// An extension that comes after the end of the assignment would be a full bucket, so it is sent early enough.
    #[expect(clippy::option_option, reason = "an extension may need no message")]
    fn extend(&mut self, now: Timestamp) -> Option<Option<QuotaAction>> {
        let policy = self.policy;
        let current = self.ledger.current(now);
        let grant =
            current.filter(|grant| grant.pool.policy == policy && grant.certainly_left() > 0)?;
        let ttl = whole_seconds(grant.must_end.since(now)).min(MAX_TTL);
        // The end of the window is near: the grant lasts as long as it may.
        let is_last = grant.pool.window_end.is_some() && grant.ends_at + MAX_DELAY > grant.must_end;
        if now + ttl <= grant.ends_at {
            return is_last.then_some(None);
        }
        let can_arrive = now + MAX_DELAY <= grant.ends_at;
        let is_useful = ttl >= MIN_EXTENSION || grant.pool.window_end.is_some();
        if !can_arrive || !is_useful || ttl.is_zero() {
            return None;
        }
        grant.ends_at = now + ttl;
        self.wake_at = Some(before(grant.ends_at, ENDING));
        Some(Some(QuotaAction::Assign(Assignment::Extension {
            units: grant.units,
            id: grant.id,
            ttl,
        })))
    }

    /// Something is due: a grant ends, a window begins, or the store is asked again.
    pub fn wake(&mut self, now: Timestamp) -> Vec<QuotaAction> {
        if self.wake_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.wake_at = None;
        // An Envoy that is alive reports every 5 seconds. One that is not gets no new grant.
        if now.since(self.reported_at) > MAX_SILENCE {
            return Vec::new();
        }
        vec![QuotaAction::Look]
    }

    /// The store has `remaining` requests left: returns how many to charge, or what to send in place of a grant.
    ///
    /// # Errors
    ///
    /// The actions, if nothing is to be charged now.
    pub fn looked(
        &mut self,
        time: AnswerTime,
        remaining: u64,
        others: OtherDemand,
    ) -> Result<u64, Vec<QuotaAction>> {
        let now = time.answered_at;
        let end = self.must_end(time);
        if end.ttl(now).is_zero() {
            return Err(self.keep_or_deny(now, end.over_at.unwrap_or(now + MIN_RETRY)));
        }
        let units = grant_size(self.rate, others, remaining, end.must_end.since(now));
        let policy = self.policy;
        let current = self.ledger.current(now);
        let kept =
            current.filter(|grant| grant.pool.policy == policy && units <= grant.certainly_left());
        // A smaller grant would take away what Envoy has left.
        if kept.is_some()
            && let Some(extension) = self.extend(now)
        {
            return Err(extension.into_iter().collect());
        }
        Ok(units)
    }

    /// The store has charged `units` requests. Returns the number of the grant, to keep its receipt by.
    pub fn charged(&mut self, time: AnswerTime, units: u64) -> (GrantId, Vec<QuotaAction>) {
        let now = time.answered_at;
        self.last_version = self.last_version % MAX_VERSION + 1;
        let id = GrantId(self.last_version);
        let end = self.must_end(time);
        let ttl = end.ttl(now);
        if ttl.is_zero() {
            // The window ended while the store was asked. Nothing was sent, so all of it goes back.
            let settled = SettledGrant { id, units, used: 0 };
            let mut actions = vec![QuotaAction::Settle(settled)];
            actions.extend(self.deny_until(now, end.over_at.unwrap_or(now + MIN_RETRY)));
            return (id, actions);
        }
        let grant = Grant {
            id,
            units,
            used: 0,
            reported: 0,
            pool: Pool {
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
        let assignment = Assignment::Grant { units, id, ttl };
        (id, vec![QuotaAction::Assign(assignment)])
    }

    /// The store has nothing left for `retry_after`.
    pub fn denied(&mut self, now: Timestamp, retry_after: Duration) -> Vec<QuotaAction> {
        self.keep_or_deny(now, now + retry_after.max(MIN_RETRY))
    }

    /// The store did not answer: the assignment is left to its end, and the store is asked again after a second.
    pub fn store_away(&mut self, now: Timestamp) {
        self.wake_at = Some(now + MIN_RETRY);
    }

    /// The policy of the bucket has changed: it is granted anew.
    pub fn change_terms(
        &mut self,
        terms: GrantTerms,
        is_enforced: bool,
        now: Timestamp,
    ) -> Vec<QuotaAction> {
        self.terms = terms;
        self.is_enforced = is_enforced;
        self.policy += 1;
        self.blanket_until = None;
        self.renew(now).into_iter().collect()
    }

    /// Keeps a grant that has something left as long as it may live, else denies everything until `until`.
    fn keep_or_deny(&mut self, now: Timestamp, until: Timestamp) -> Vec<QuotaAction> {
        let extension = self.extend(now).flatten();
        let policy = self.policy;
        let current = self.ledger.current(now);
        let kept = current.filter(|grant| {
            let has_units = grant.pool.policy == policy && grant.certainly_left() > 0;
            has_units && now + MAX_DELAY < grant.ends_at
        });
        let Some(grant) = kept else {
            return self.deny_until(now, until);
        };
        self.wake_at = Some(before(grant.ends_at, ENDING).min(until));
        extension.into_iter().collect()
    }

    /// Denies everything, and asks the store again at `until`.
    fn deny_until(&mut self, now: Timestamp, until: Timestamp) -> Vec<QuotaAction> {
        self.wake_at = Some(until);
        let needed = until + DENIAL_RESERVE;
        let has_grant = self.ledger.current(now).is_some();
        if !has_grant
            && self
                .blanket_until
                .is_some_and(|end| end + MIN_RETRY >= needed)
        {
            return Vec::new();
        }
        self.ledger.supersede(now);
        let ttl = whole_seconds(needed.since(now)) + Duration::from_secs(1);
        self.blanket_until = Some(now + ttl);
        vec![QuotaAction::Assign(Assignment::DenyAll { ttl })]
    }

    /// Allows everything: the policy is not enforced for the key, and counts only.
    fn allow_all(&mut self, now: Timestamp) -> Option<QuotaAction> {
        let is_fresh = self
            .blanket_until
            .is_some_and(|end| end.since(now) > UNENFORCED_TTL / 2);
        if is_fresh {
            return None;
        }
        self.ledger.supersede(now);
        self.blanket_until = Some(now + UNENFORCED_TTL);
        Some(QuotaAction::Assign(Assignment::AllowAll {
            ttl: UNENFORCED_TTL,
        }))
    }

    /// When a grant that was charged at that time must have ended at Envoy.
    fn must_end(&self, time: AnswerTime) -> GrantEnd {
        let window = self.terms.window_end(time.decided_at);
        let left = window.map(|end| end.since(time.decided_at));
        // The store decided between the question and the answer: the earlier time is the safe one.
        let window_end = left.map(|left| before(time.asked_at + left, MAX_DELAY));
        let held_end = self.terms.max_hold().map(|hold| time.asked_at + hold);
        let ends = [window_end, held_end].into_iter().flatten();
        GrantEnd {
            must_end: ends.min().unwrap_or(time.asked_at + MAX_TTL),
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

const fn whole_seconds(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs())
}

fn before(time: Timestamp, span: Duration) -> Timestamp {
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    Timestamp::from_micros(time.as_micros().saturating_sub(micros))
}
