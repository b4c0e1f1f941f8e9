//! What one key has spent under one group of limits, and the step that decides a hit on it.

mod settle;
mod states;

use std::time::Duration;

pub use self::settle::Change;
pub(crate) use self::settle::{Settled, Settling};
use self::states::{States, Tail};
use super::group::{Asked, Bound, Group, Purpose};
use crate::{
    algorithm::{Ask, Fit, Spend, State},
    decision::{Charge, Decision, LimitDecision, Outcome},
    time::{Timestamp, micros},
};

const SHORTEST_TTL: u64 = 1_000_000;

/// How long a written state is kept: what it needs, in whole milliseconds and one more, at least 1 s.
///
/// The one more is because a server counts a key's life from the millisecond before the write.
const fn ttl_micros(need_micros: u64) -> u64 {
    let whole = need_micros.div_ceil(1_000).saturating_mul(1_000);
    let kept = whole.saturating_add(1_000);
    if kept < SHORTEST_TTL {
        SHORTEST_TTL
    } else {
        kept
    }
}

/// What one key has spent: a state for each limit, and the moment from which they mean nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    expires: Timestamp,
    states: States,
}

impl Budget {
    /// Decides the most common hit at a fraction of the price of [`Budget::hit`], and no other: one on
    /// one token bucket, which has something left after it.
    #[inline(always)]
    pub(crate) fn charge_at_once(
        &mut self,
        group: &Group,
        asked: Asked,
        now: Timestamp,
    ) -> Option<Charge> {
        let ([bound], States::One(Some(state))) = (&*group.bounds, &mut self.states) else {
            return None;
        };
        if asked.purpose != Purpose::Spend || now >= self.expires {
            return None;
        }
        let bucket = bound.plain_bucket()?;
        let charge = bucket.charge_at_once(state, now, asked.cost)?;
        self.expires = after(now, ttl_micros(charge.reset_micros));
        Some(charge)
    }

    /// Decides a hit on a policy whose limits all share this key, and spends it, or nothing; tells
    /// whether that was written.
    #[inline]
    pub(crate) fn hit(&mut self, group: &Group, asked: Asked, decision: &mut Decision) -> bool {
        let now = decision.now;
        match (&*group.bounds, &mut self.states) {
            ([bound], States::One(slot)) if now < self.expires => {
                let expires = &mut self.expires;
                hit_one(bound, slot, expires, asked, decision)
            }
            _ => self.hit_drafted(group, asked, decision),
        }
    }

    #[inline(never)]
    fn hit_drafted(&mut self, group: &Group, asked: Asked, decision: &mut Decision) -> bool {
        let now = decision.now;
        let Some(mut draft) = self.draft(group.bounds.len(), now) else {
            return self.hit_stored(group, asked, decision);
        };
        let wrote = draft.hit_stored(group, asked, decision);
        if wrote {
            *self = draft;
        }
        wrote
    }

    fn hit_stored(&mut self, group: &Group, asked: Asked, decision: &mut Decision) -> bool {
        let now = decision.now;
        if let ([bound], States::One(slot)) = (&*group.bounds, &mut self.states) {
            return hit_one(bound, slot, &mut self.expires, asked, decision);
        }
        let spend = spend(self.fit_stored(group, now, asked), asked);
        let gather = |_: &Bound, step| decision.gather(step);
        let wrote = self.spend_stored(group, now, asked, spend, gather);
        decision.conclude();
        wrote
    }

    /// Whether a hit fits into all limits of the group.
    pub(crate) fn fit(&self, group: &Group, now: Timestamp, asked: Asked) -> Fit {
        match self.draft(group.bounds.len(), now) {
            None => self.fit_stored(group, now, asked),
            Some(draft) => draft.fit_stored(group, now, asked),
        }
    }

    /// Does what was decided for all groups of a policy, and tells whether that was written.
    pub(crate) fn spend(
        &mut self,
        group: &Group,
        now: Timestamp,
        asked: Asked,
        spend: Spend,
        each: impl FnMut(&Bound, LimitDecision),
    ) -> bool {
        let Some(mut draft) = self.draft(group.bounds.len(), now) else {
            return self.spend_stored(group, now, asked, spend, each);
        };
        let wrote = draft.spend_stored(group, now, asked, spend, each);
        if wrote {
            *self = draft;
        }
        wrote
    }

    /// What counts of a budget that expired, or has fewer states than there are limits.
    ///
    /// The stored budget is replaced only when something is written.
    fn draft(&self, count: usize, now: Timestamp) -> Option<Budget> {
        if now >= self.expires {
            return Some(Budget {
                expires: Timestamp::default(),
                states: match count {
                    1 => States::default(),
                    _ => States::new(vec![None; count], None),
                },
            });
        }
        (self.states.as_slice().len() < count).then(|| Budget {
            expires: self.expires,
            states: self.states.grown(count),
        })
    }

    fn fit_stored(&self, group: &Group, now: Timestamp, asked: Asked) -> Fit {
        let slots = self.states.as_slice();
        let fits = group
            .bounds
            .iter()
            .zip(slots)
            .map(|(bound, slot)| bound.limit.fit(slot.as_ref(), now, bound.ask(asked)));
        fits.max().unwrap_or(Fit::Now)
    }

    fn spend_stored(
        &mut self,
        group: &Group,
        now: Timestamp,
        asked: Asked,
        spend: Spend,
        mut each: impl FnMut(&Bound, LimitDecision),
    ) -> bool {
        let before = self.expires;
        let slots = self.states.as_mut_slice();
        let writes =
            |(bound, slot): (&Bound, &Option<State>)| bound.limit.writes_denied(slot.as_ref(), now);
        let (rewritten, charged) = match spend {
            Spend::Charge => (true, asked.cost),
            Spend::Deny => (group.bounds.iter().zip(&*slots).any(writes), 0),
            Spend::Nothing => (false, 0),
        };
        let left = if rewritten {
            Duration::MAX
        } else {
            left_to_live(self.expires, now)
        };
        let mut need = Duration::ZERO;
        let mut keeps_expiry = false;
        for (bound, slot) in group.bounds.iter().zip(slots) {
            let stepped = bound.limit.step(slot, now, bound.ask(asked), |_| spend);
            need = need.max(stepped.need);
            keeps_expiry |= stepped.keeps_expiry;
            each(bound, bound.seen(capped(stepped.decision, left), charged));
        }
        if rewritten {
            self.expires = expires(now, need);
            if keeps_expiry {
                self.expires = self.expires.max(before);
            }
            self.keep_rest(group.bounds.len(), before, now);
        }
        rewritten
    }

    /// Keeps what stands behind the states of the `own` limits of the policy that was just written: the
    /// states of limits that another version or tier of the policy has, and the last reset.
    ///
    /// They count until the budget would have expired when its own policy wrote it last, which is `before`
    /// unless a tail says otherwise.
    fn keep_rest(&mut self, own: usize, before: Timestamp, now: Timestamp) {
        let tail = self.states.tail();
        if tail.is_none() && self.states.as_slice().len() == own {
            return;
        }
        let tail = tail.unwrap_or(Tail {
            until: before,
            reset_at: None,
        });
        let mut states = self.states.as_slice().to_vec();
        if now >= tail.until || states[own..].iter().all(Option::is_none) {
            states.truncate(own);
        }
        let is_needed = now < tail.until && (states.len() > own || tail.reset_at.is_some());
        self.states = States::new(states, is_needed.then_some(tail));
        if is_needed {
            self.expires = self.expires.max(tail.until);
        }
    }

    /// Forgets what was spent; receipts up to now give nothing back any more.
    pub(crate) fn reset(&mut self, now: Timestamp) {
        if now >= self.expires {
            *self = Budget::default();
            return;
        }
        let tail = Tail {
            until: self.expires,
            reset_at: Some(now),
        };
        self.states = States::new(Vec::new(), Some(tail));
    }

    /// The moment from which nothing here counts.
    pub(crate) const fn expires(&self) -> Timestamp {
        self.expires
    }

    /// How long until every limit has something left, and no slot is held.
    ///
    /// A slot that was forgotten would be given to somebody else while it is in use. Of limits that the policy
    /// does not have, nobody here knows what they have left: they count as exhausted until they expire.
    pub(crate) fn recovers_after(&self, group: &Group, now: Timestamp) -> Duration {
        let one = Ask {
            cost: 1,
            ..Ask::NOTHING
        };
        let states = group.bounds.iter().zip(self.states.as_slice());
        let waits = states.map(|(bound, slot)| match slot {
            Some(State::Concurrency(slots)) => slots.end().since(now),
            _ => bound.limit.wait(slot.as_ref(), now, one),
        });
        let unknown = self.unknown_until().map(|until| until.since(now));
        waits.chain(unknown).max().unwrap_or_default()
    }

    /// How many limits have a place in it.
    #[inline]
    pub(crate) fn state_count(&self) -> usize {
        self.states.as_slice().len()
    }

    /// Until when it keeps states of limits that the policy of the last hit did not have.
    fn unknown_until(&self) -> Option<Timestamp> {
        let tail = self.states.tail().filter(|tail| tail.reset_at.is_none());
        tail.map(|tail| tail.until)
    }

    /// Whether somebody holds a slot, or limits have states that the policy of the last hit does not know.
    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        match &self.states {
            States::One(slot) => slot.as_ref().is_some_and(State::holds_slots),
            States::Tailed(_) if self.unknown_until().is_some() => true,
            several => several.as_slice().iter().flatten().any(State::holds_slots),
        }
    }

    /// How many stamps of logs and slots are kept.
    #[inline]
    pub(crate) fn stamps(&self) -> usize {
        match &self.states {
            States::One(Some(state @ (State::SlidingWindowLog(_) | State::Concurrency(_)))) => {
                state.stamps()
            }
            States::One(_) => 0,
            several => several.as_slice().iter().flatten().map(State::stamps).sum(),
        }
    }
}

/// Decides a hit on the one limit of a policy, which brings its state to the present only once.
#[inline]
fn hit_one(
    bound: &Bound,
    slot: &mut Option<State>,
    expires_at: &mut Timestamp,
    asked: Asked,
    decision: &mut Decision,
) -> bool {
    let now = decision.now;
    let ask = bound.ask(asked);
    let stepped = bound.limit.step(slot, now, ask, |fit| spend(fit, asked));
    let step = if stepped.wrote {
        let before = *expires_at;
        *expires_at = expires(now, stepped.need);
        if stepped.keeps_expiry {
            *expires_at = before.max(*expires_at);
        }
        stepped.decision
    } else {
        capped(stepped.decision, left_to_live(*expires_at, now))
    };
    decision.tell(bound.seen(step, stepped.charged));
    stepped.wrote
}

/// What a hit does that fits so.
pub(crate) const fn spend(fit: Fit, asked: Asked) -> Spend {
    match (asked.purpose, fit) {
        (Purpose::Spend, Fit::Now) if asked.cost > 0 => Spend::Charge,
        (Purpose::Spend, Fit::Later) => Spend::Deny,
        _ => Spend::Nothing,
    }
}

#[inline]
fn expires(now: Timestamp, need: Duration) -> Timestamp {
    after(now, ttl_micros(micros(need)))
}

#[inline]
const fn after(now: Timestamp, micros: u64) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_add(micros))
}

/// How long the stored states still count; for ever where there are none, or time itself ends first.
pub(crate) fn left_to_live(expires: Timestamp, now: Timestamp) -> Duration {
    if expires > now && expires < Timestamp::MAX {
        expires.since(now)
    } else {
        Duration::MAX
    }
}

/// No wait is longer than the stored states last: a changed limit may reckon with more.
pub(crate) fn capped(mut decision: LimitDecision, left: Duration) -> LimitDecision {
    decision.reset_after = decision.reset_after.min(left);
    if let Outcome::Denied { retry_after } = &mut decision.outcome {
        *retry_after = (*retry_after).min(left);
    }
    decision
}

#[cfg(test)]
mod tests;
