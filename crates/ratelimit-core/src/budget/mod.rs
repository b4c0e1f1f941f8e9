//! What one key has spent under one group of limits, and the step that decides a hit on it.

mod settle;
mod states;

use std::time::Duration;

pub use self::settle::Adjustment;
pub(crate) use self::settle::{AdjustmentRequest, AdjustmentResult};
use crate::budget::states::{States, Tail};
use crate::policy::{EffectiveLimit, HitMode, HitParams, LimitGroup};
use crate::{
    algorithm::{Demand, Effect, Fit, State},
    decision::{Decision, FastCharge, LimitDecision, Outcome},
    time::{Timestamp, micros},
};

const MIN_TTL_MICROS: u64 = 1_000_000;

/// How long a written state is kept: what it needs, in whole milliseconds and one more, at least 1 s.
///
/// The one more is because a server counts a key's life from the millisecond before the write.
const fn ttl_micros(need_micros: u64) -> u64 {
    let rounded = need_micros.div_ceil(1_000).saturating_mul(1_000);
    let kept = rounded.saturating_add(1_000);
    if kept < MIN_TTL_MICROS {
        MIN_TTL_MICROS
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
    pub(crate) fn try_charge_fast(
        &mut self,
        group: &LimitGroup,
        params: HitParams,
        now: Timestamp,
    ) -> Option<FastCharge> {
        let ([effective], States::One(Some(state))) = (&*group.limits, &mut self.states) else {
            return None;
        };
        if params.mode != HitMode::Charge || now >= self.expires {
            return None;
        }
        let bucket = effective.as_hard_token_bucket()?;
        let charge = bucket.try_charge_fast(state, now, params.cost)?;
        self.expires = after(now, ttl_micros(charge.reset_micros));
        Some(charge)
    }

    /// Decides a hit on a policy whose limits all share this key, and spends it, or nothing; tells
    /// whether that was written.
    #[inline]
    pub(crate) fn check(
        &mut self,
        group: &LimitGroup,
        params: HitParams,
        decision: &mut Decision,
    ) -> bool {
        let now = decision.now;
        match (&*group.limits, &mut self.states) {
            ([effective], States::One(slot)) if now < self.expires => {
                let expires = &mut self.expires;
                check_single(effective, slot, expires, params, decision)
            }
            _ => self.check_reshaped(group, params, decision),
        }
    }

    #[inline(never)]
    fn check_reshaped(
        &mut self,
        group: &LimitGroup,
        params: HitParams,
        decision: &mut Decision,
    ) -> bool {
        let now = decision.now;
        let Some(mut draft) = self.reshaped(group.limits.len(), now) else {
            return self.check_stored(group, params, decision);
        };
        let stored = draft.check_stored(group, params, decision);
        if stored {
            *self = draft;
        }
        stored
    }

    fn check_stored(
        &mut self,
        group: &LimitGroup,
        params: HitParams,
        decision: &mut Decision,
    ) -> bool {
        let now = decision.now;
        if let ([effective], States::One(slot)) = (&*group.limits, &mut self.states) {
            return check_single(effective, slot, &mut self.expires, params, decision);
        }
        let effect = apply(self.fits_stored(group, now, params), params);
        let gather = |_: &EffectiveLimit, step| decision.push_limit(step);
        let stored = self.apply_stored(group, now, params, effect, gather);
        decision.select_binding_limit();
        stored
    }

    /// Whether a hit fits into all limits of the group.
    pub(crate) fn fit(&self, group: &LimitGroup, now: Timestamp, params: HitParams) -> Fit {
        match self.reshaped(group.limits.len(), now) {
            None => self.fits_stored(group, now, params),
            Some(draft) => draft.fits_stored(group, now, params),
        }
    }

    /// Does what was decided for all groups of a policy, and tells whether that was written.
    pub(crate) fn apply(
        &mut self,
        group: &LimitGroup,
        now: Timestamp,
        params: HitParams,
        effect: Effect,
        each: impl FnMut(&EffectiveLimit, LimitDecision),
    ) -> bool {
        let Some(mut draft) = self.reshaped(group.limits.len(), now) else {
            return self.apply_stored(group, now, params, effect, each);
        };
        let stored = draft.apply_stored(group, now, params, effect, each);
        if stored {
            *self = draft;
        }
        stored
    }

    /// What counts of a budget that expired, or has fewer states than there are limits.
    ///
    /// The stored budget is replaced only when something is written.
    fn reshaped(&self, count: usize, now: Timestamp) -> Option<Budget> {
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

    fn fits_stored(&self, group: &LimitGroup, now: Timestamp, params: HitParams) -> Fit {
        let slots = self.states.as_slice();
        let fits = group.limits.iter().zip(slots).map(|(effective, slot)| {
            effective
                .limit
                .fit(slot.as_ref(), now, effective.demand(params))
        });
        fits.max().unwrap_or(Fit::Now)
    }

    fn apply_stored(
        &mut self,
        group: &LimitGroup,
        now: Timestamp,
        params: HitParams,
        effect: Effect,
        mut each: impl FnMut(&EffectiveLimit, LimitDecision),
    ) -> bool {
        let before = self.expires;
        let slots = self.states.as_mut_slice();
        let writes = |(effective, slot): (&EffectiveLimit, &Option<State>)| {
            effective.limit.stores_denial(slot.as_ref(), now)
        };
        let (rewritten, charged) = match effect {
            Effect::Charge => (true, params.cost),
            Effect::Deny => (group.limits.iter().zip(&*slots).any(writes), 0),
            Effect::None => (false, 0),
        };
        let left = if rewritten {
            Duration::MAX
        } else {
            remaining_ttl(self.expires, now)
        };
        let mut ttl = Duration::ZERO;
        let mut keeps_expiry = false;
        for (effective, slot) in group.limits.iter().zip(slots) {
            let stepped = effective
                .limit
                .step(slot, now, effective.demand(params), |_| effect);
            ttl = ttl.max(stepped.ttl);
            keeps_expiry |= stepped.keeps_expiry;
            each(
                effective,
                effective.report(cap_waits(stepped.decision, left), charged),
            );
        }
        if rewritten {
            self.expires = expires(now, ttl);
            if keeps_expiry {
                self.expires = self.expires.max(before);
            }
            self.keep_rest(group.limits.len(), before, now);
        }
        rewritten
    }

    /// Keeps what stands behind the states of the `own` limits of the policy that was just written: the
    /// states of limits that another version or tier of the policy has, and the last reset.
    ///
    /// They count until the budget would have expired when a policy that has them wrote it last. That is
    /// `before`, the expiry of the last write, when that write was by a policy with more limits. Otherwise the
    /// tail says it.
    fn keep_rest(&mut self, own: usize, before: Timestamp, now: Timestamp) {
        let tail = self.states.tail();
        if tail.is_none() && self.states.as_slice().len() == own {
            return;
        }
        let mut tail = tail.unwrap_or(Tail {
            until: before,
            reset_at: None,
            known: own,
        });
        if own < tail.known {
            tail.until = tail.until.max(before);
        }
        tail.known = own;
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
            known: 0,
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
    pub(crate) fn time_to_recover(&self, group: &LimitGroup, now: Timestamp) -> Duration {
        let one = Demand {
            cost: 1,
            ..Demand::PEEK
        };
        let states = group.limits.iter().zip(self.states.as_slice());
        let waits = states.map(|(effective, slot)| match slot {
            Some(State::Concurrency(slots)) => slots.last_expiry().since(now),
            _ => effective.limit.time_until_fit(slot.as_ref(), now, one),
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
        let tail = self.states.tail();
        let tail = tail.filter(|tail| self.state_count() > tail.known);
        tail.map(|tail| tail.until)
    }

    /// Whether somebody holds a slot, or limits have states that the policy of the last hit does not know.
    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        match &self.states {
            States::One(slot) => slot.as_ref().is_some_and(State::has_slots),
            States::WithTail(_) if self.unknown_until().is_some() => true,
            several => several.as_slice().iter().flatten().any(State::has_slots),
        }
    }

    /// How many stamps of logs and slots are kept.
    #[inline]
    pub(crate) fn stored_entries(&self) -> usize {
        match &self.states {
            States::One(Some(state @ (State::SlidingWindowLog(_) | State::Concurrency(_)))) => {
                state.stored_entries()
            }
            States::One(_) => 0,
            several => several
                .as_slice()
                .iter()
                .flatten()
                .map(State::stored_entries)
                .sum(),
        }
    }
}

/// Decides a hit on the one limit of a policy, which brings its state to the present only once.
#[inline]
fn check_single(
    effective: &EffectiveLimit,
    slot: &mut Option<State>,
    expires_at: &mut Timestamp,
    params: HitParams,
    decision: &mut Decision,
) -> bool {
    let now = decision.now;
    let demand = effective.demand(params);
    let stepped = effective
        .limit
        .step(slot, now, demand, |fit| apply(fit, params));
    let step = if stepped.stored {
        let before = *expires_at;
        *expires_at = expires(now, stepped.ttl);
        if stepped.keeps_expiry {
            *expires_at = before.max(*expires_at);
        }
        stepped.decision
    } else {
        cap_waits(stepped.decision, remaining_ttl(*expires_at, now))
    };
    decision.set_from(effective.report(step, stepped.charged));
    stepped.stored
}

/// What a hit does that fits so.
pub(crate) const fn apply(fit: Fit, params: HitParams) -> Effect {
    match (params.mode, fit) {
        (HitMode::Charge, Fit::Now) if params.cost > 0 => Effect::Charge,
        (HitMode::Charge, Fit::Later) => Effect::Deny,
        _ => Effect::None,
    }
}

#[inline]
fn expires(now: Timestamp, ttl: Duration) -> Timestamp {
    after(now, ttl_micros(micros(ttl)))
}

#[inline]
const fn after(now: Timestamp, micros: u64) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_add(micros))
}

/// How long the stored states still count; for ever where there are none, or time itself ends first.
pub(crate) fn remaining_ttl(expires: Timestamp, now: Timestamp) -> Duration {
    if expires > now && expires < Timestamp::MAX {
        expires.since(now)
    } else {
        Duration::MAX
    }
}

/// No wait is longer than the stored states last: a changed limit may reckon with more.
pub(crate) fn cap_waits(mut decision: LimitDecision, left: Duration) -> LimitDecision {
    decision.reset_after = decision.reset_after.min(left);
    if let Outcome::Denied { retry_after } = &mut decision.outcome {
        *retry_after = (*retry_after).min(left);
    }
    decision
}

#[cfg(test)]
mod tests;
