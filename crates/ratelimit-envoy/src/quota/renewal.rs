//! The next assignment of a bucket, from what it holds.

use std::time::Duration;

use ratelimit_core::Timestamp;

use crate::quota::{
    assignment::Assignment,
    bucket::{ENDING, MAX_TTL, MIN_RETRY, QuotaBucket, Renewal, before, whole_seconds},
    grant::{Grant, MAX_DELAY},
};

/// An extension must reach the report after the next one.
const MIN_EXTENSION: Duration = Duration::from_secs(6);

/// The time that a denial outlives the moment when units are expected.
const DENIAL_RESERVE: Duration = Duration::from_secs(2);

/// The life of an assignment without a limit, for keys that the policy does not enforce.
const UNENFORCED_TTL: Duration = Duration::from_secs(60);

impl QuotaBucket {
    /// Keeps or extends the grant that Envoy has after a report, or asks for another.
    ///
    /// `now` is the time when an assignment can be sent. The life of an extension begins there.
    pub fn renew(&mut self, now: Timestamp) -> Renewal {
        if !self.is_enforced {
            return self.allow_all(now);
        }
        let expected = self.rate.expected();
        let current = self.current(now);
        if current.is_some_and(|grant| grant.certainly_left() >= expected) {
            match self.extend(now) {
                Renewal::Look => {}
                extended => return extended,
            }
        }
        let has_blanket = self.blanket_until.is_some_and(|end| now < end);
        let has_assignment = has_blanket || self.ledger.current(now).is_some();
        let next_look = self.looked_at.map(|at| at + MIN_RETRY);
        // Reports that come faster than each second do not ask the store more often.
        if let Some(next) = next_look.filter(|next| now < *next && has_assignment) {
            self.wake_by(next);
            return Renewal::Keep;
        }
        self.looked_at = Some(now);
        self.look(now)
    }

    /// Asks the store, unless its answer is known: nothing is granted in the last second of a window.
    pub fn look(&mut self, now: Timestamp) -> Renewal {
        let current = self.current(now);
        let over_at = current.and_then(|grant| grant.budget.over_at);
        match over_at.filter(|over| now < *over && over.since(now) < MAX_DELAY * 2) {
            Some(over_at) => self.deny_until(now, over_at),
            None => Renewal::Look,
        }
    }

    /// The grant of the present policy that Envoy has.
    pub(super) fn current(&mut self, now: Timestamp) -> Option<&mut Grant> {
        let policy = self.policy;
        let current = self.ledger.current(now);
        current.filter(|grant| grant.budget.policy == policy)
    }

    /// Extends the grant that Envoy has; [`Renewal::Look`] if it cannot be kept.
    ///
    /// An extension that comes after the end of the assignment would be a full bucket, so it is sent early enough.
    pub(super) fn extend(&mut self, now: Timestamp) -> Renewal {
        let Some(grant) = self.current(now).filter(|grant| grant.certainly_left() > 0) else {
            return Renewal::Look;
        };
        let ttl = whole_seconds(grant.must_end.since(now)).min(MAX_TTL);
        if ttl.is_zero() {
            return Renewal::Look;
        }
        let has_window = grant.budget.window_end.is_some();
        if now + ttl <= grant.ends_at {
            // The end of the window is near: the grant lasts as long as it may.
            if !has_window || grant.ends_at + MAX_DELAY <= grant.must_end {
                return Renewal::Look;
            }
            let wake_at = before(grant.ends_at, ENDING);
            self.wake_by(wake_at);
            return Renewal::Keep;
        }
        let can_arrive = now + MAX_DELAY <= grant.ends_at;
        let is_useful = ttl >= MIN_EXTENSION || has_window;
        if !can_arrive || !is_useful {
            return Renewal::Look;
        }
        grant.ends_at = now + ttl;
        let (units, id) = (grant.units, grant.id);
        self.wake_at = Some(before(now + ttl, ENDING));
        Renewal::Send(Assignment::Extension { units, id, ttl })
    }

    /// Keeps a grant that has something left as long as it may live, else denies everything until `until`.
    pub(super) fn keep_or_deny(&mut self, now: Timestamp, until: Timestamp) -> Renewal {
        let extended = self.extend(now);
        let current = self.current(now);
        let kept =
            current.filter(|grant| grant.certainly_left() > 0 && now + MAX_DELAY < grant.ends_at);
        let Some(grant) = kept else {
            return self.deny_until(now, until);
        };
        self.wake_at = Some(before(grant.ends_at, ENDING).min(until));
        match extended {
            Renewal::Look => Renewal::Keep,
            extended => extended,
        }
    }

    /// Denies everything, and asks the store again at `until`.
    pub(super) fn deny_until(&mut self, now: Timestamp, until: Timestamp) -> Renewal {
        self.wake_at = Some(until);
        let needed = until + DENIAL_RESERVE;
        let has_grant = self.ledger.current(now).is_some();
        let is_denied = |end: Timestamp| end + MIN_RETRY >= needed;
        if !has_grant && self.blanket_until.is_some_and(is_denied) {
            return Renewal::Keep;
        }
        self.ledger.supersede(now);
        let ttl = whole_seconds(needed.since(now)) + Duration::from_secs(1);
        self.blanket_until = Some(now + ttl);
        Renewal::Send(Assignment::DenyAll { ttl })
    }

    /// Allows everything: the policy is not enforced for the key, and counts only.
    fn allow_all(&mut self, now: Timestamp) -> Renewal {
        let is_fresh = |end: Timestamp| end.since(now) > UNENFORCED_TTL / 2;
        if self.blanket_until.is_some_and(is_fresh) {
            return Renewal::Keep;
        }
        self.ledger.supersede(now);
        self.blanket_until = Some(now + UNENFORCED_TTL);
        Renewal::Send(Assignment::AllowAll {
            ttl: UNENFORCED_TTL,
        })
    }

    /// Wakes the bucket at `at` or before.
    fn wake_by(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}
