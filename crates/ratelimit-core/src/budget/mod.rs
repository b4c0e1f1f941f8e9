//! The budget of one key under one group of limits, and the step that decides a hit on it; `states.rs` has its
//! layout.
//!
//! Lua twins: `lua/check.lua` decides and stores in the same order, `lua/reset.lua` resets.

mod local;
mod settle;
mod states;
mod waits;

use std::time::Duration;

pub use self::settle::Adjustment;
pub(crate) use self::{
    local::LimitUnits,
    settle::{AdjustmentRequest, AdjustmentResult},
    waits::{cap_waits, remaining_ttl},
};
use crate::budget::states::{States, Tail};
use crate::policy::{EffectiveLimit, HitMode, HitParams, LimitGroup};
use crate::{
    algorithm::{Demand, Effect, Fit, State},
    decision::{Decision, FastCharge, LimitDecision},
    time::{Timestamp, micros},
};

/// The expiry of a budget moves in steps of 1 s, from the time of its first write. So most hits of a busy key leave it
/// as it is, and Redis sets the TTL once a second only, which is a sixth of its work for a hit.
const EXPIRY_STEP_MICROS: u64 = 1_000_000;

/// The least time between the end of the need and the expiry: 1 ms. Redis counts a TTL from the millisecond that it
/// cached before the write.
const MIN_SLACK_MICROS: u64 = 1_000;

/// The expiry of a budget whose states are needed for `need_micros` from `now` on, and that expires at `before` so far
/// (law 7): the earliest step that is late enough. The steps of a budget that has expired begin anew.
///
/// It depends on the latest need only, so several charges at one time have the expiry of one charge of their sum.
#[inline]
const fn expiry(before: Timestamp, now: Timestamp, need_micros: u64) -> Timestamp {
    let (before, now) = (before.as_micros(), now.as_micros());
    let start = if before > now {
        before
    } else {
        now.saturating_add(MIN_SLACK_MICROS)
    };
    let needed = now
        .saturating_add(need_micros)
        .saturating_add(MIN_SLACK_MICROS);
    let expires = if start < needed {
        let steps = (needed - start).div_ceil(EXPIRY_STEP_MICROS);
        start.saturating_add(steps.saturating_mul(EXPIRY_STEP_MICROS))
    } else {
        needed + (start - needed) % EXPIRY_STEP_MICROS
    };
    Timestamp::from_micros(expires)
}

/// The states of one key under one group of limits. A default budget has expired: nothing is spent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    /// From this time of the store on, the states count for nothing. Never before `until` of a tail.
    expires: Timestamp,
    /// One state for each limit of the group, by position, and states of limits that the last policy did not have.
    states: States,
}

impl Budget {
    /// Fast path of [`check`](Budget::check): one hard token bucket with tokens left after the hit; `None` otherwise.
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
        self.expires = expiry(self.expires, now, charge.reset_micros);
        Some(charge)
    }

    /// Decides a hit on all limits of the group, all or nothing, into `decision`. Returns whether the budget changed.
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

    /// The general path, out of line to keep that of one limit small. A draft replaces the budget only if it was
    /// written.
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

    /// Compares all limits before any is charged (law 2). One limit is compared and charged in one step.
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

    /// Whether a hit fits into all limits of the group: the worst fit of its limits. Writes nothing. With several
    /// groups the store calls it for each group before it calls [`apply`](Budget::apply) for any: all or nothing.
    pub(crate) fn fit(&self, group: &LimitGroup, now: Timestamp, params: HitParams) -> Fit {
        match self.reshaped(group.limits.len(), now) {
            None => self.fits_stored(group, now, params),
            Some(draft) => draft.fits_stored(group, now, params),
        }
    }

    /// Applies the effect that was decided for all groups of a policy. Returns whether the budget changed.
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

    /// A draft with `count` states if the budget has expired or is too short; `None` if the stored states fit.
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

    /// The worst fit of stored states that are long enough and have not expired.
    fn fits_stored(&self, group: &LimitGroup, now: Timestamp, params: HitParams) -> Fit {
        let slots = self.states.as_slice();
        let fits = group.limits.iter().zip(slots).map(|(effective, slot)| {
            effective
                .limit
                .fit(slot.as_ref(), now, effective.demand(params))
        });
        fits.max().unwrap_or(Fit::Now)
    }

    /// Steps every limit with the same effect, reports each decision to `each`, and sets the expiry to the longest
    /// need.
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
        // A hit that writes nothing leaves the old expiry, which then bounds its waits.
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
            self.expires = expiry(before, now, micros(ttl));
            if keeps_expiry {
                self.expires = self.expires.max(before);
            }
            self.keep_rest(group.limits.len(), before, now);
        }
        rewritten
    }

    /// Keeps the states behind the `own` ones just written (another version or tier of the policy), and the reset.
    /// They count until the budget would have expired after the last write by a policy that has them: `before` if
    /// that was by a policy with more limits, else `until` of the tail (0003, "A limit is known by its position").
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

    /// Forgets what was spent. The tail keeps the time of the reset: receipts up to it give nothing back.
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

    /// The time until every limit has a unit left and no slot is held: the memory store evicts the key last until
    /// then. A forgotten slot would be handed out again while it is in use. Limits that the policy does not have
    /// count as exhausted until their states expire, because their numbers are unknown here.
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

    /// The number of stored states, those of unknown limits included.
    #[inline]
    pub(crate) fn state_count(&self) -> usize {
        self.states.as_slice().len()
    }

    /// The moment until which states of limits count that the policy of the last hit did not have.
    fn unknown_until(&self) -> Option<Timestamp> {
        let tail = self.states.tail();
        let tail = tail.filter(|tail| self.state_count() > tail.known);
        tail.map(|tail| tail.until)
    }

    /// Whether a slot is held or states of unknown limits count: the key then counts as exhausted whatever its limits
    /// have left.
    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        match &self.states {
            States::One(slot) => slot.as_ref().is_some_and(State::has_slots),
            States::WithTail(_) if self.unknown_until().is_some() => true,
            several => several.as_slice().iter().flatten().any(State::has_slots),
        }
    }

    /// The heap memory of boxed states, stamps and slots in units of 8 bytes, for the bound on memory.
    #[inline]
    pub(crate) fn stored_entries(&self) -> usize {
        let states = self.states.as_slice().iter().flatten();
        states.map(State::stored_entries).sum()
    }
}

/// Decides a hit on one limit. The state is advanced once; with several limits `fit` and `step` both advance it.
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
        *expires_at = expiry(before, now, micros(stepped.ttl));
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

/// The effect of a hit with this fit: a dry run, a cost of 0 and an impossible hit have none.
pub(crate) const fn apply(fit: Fit, params: HitParams) -> Effect {
    match (params.mode, fit) {
        (HitMode::Charge, Fit::Now) if params.cost > 0 => Effect::Charge,
        (HitMode::Charge, Fit::Later) => Effect::Deny,
        _ => Effect::None,
    }
}

#[cfg(test)]
mod tests;
