//! The budget of one key under one group of limits, and the step that decides a hit on it; `states.rs` has its
//! layout.
//!
//! Lua twins: `lua/check.lua` decides and stores in the same order, `lua/reset.lua` resets.

mod local;
mod settle;
mod states;
mod waits;

use std::time::Duration;

use smallvec::SmallVec;

pub use self::settle::Adjustment;
pub(crate) use self::{
    local::LimitUnits,
    settle::AdjustmentRequest,
    waits::{cap_waits, remaining_ttl},
};
use crate::budget::states::{States, Tail};
use crate::policy::{HitMode, HitParams, LimitGroup, MAX_LIMITS};
use crate::{
    algorithm::{Demand, Effect, Fit, State},
    decision::{Charged, ChargedLimit},
    time::{Timestamp, micros},
};

/// The decisions of the limits of a policy, with the marks of their charges.
pub(crate) type ChargedLimits = SmallVec<[ChargedLimit; MAX_LIMITS]>;

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
    /// Fast path of [`apply`](Budget::apply) for a token bucket that has tokens left after the hit; `None` otherwise, and
    /// nothing is changed.
    #[inline(always)]
    pub(crate) fn try_charge_fast(
        &mut self,
        group: &LimitGroup,
        params: HitParams,
        now: Timestamp,
    ) -> Option<Charged> {
        let ([effective], States::One(Some(state))) = (&*group.limits, &mut self.states) else {
            return None;
        };
        if params.mode != HitMode::Charge || now >= self.expires {
            return None;
        }
        let bucket = effective.as_hard_token_bucket()?;
        let (limit, mark) = bucket.try_charge_fast(state, now, params.cost)?;
        self.expires = expiry(self.expires, now, micros(limit.reset_after));
        Some(Charged::of_limit(limit, mark, now))
    }

    /// Fast path of [`apply`](Budget::apply) for a single limit whose state has not expired, which needs no list and no draft:
    /// 1,225 instead of 1,472 instructions of a check under a fixed window (`cargo xtask gate`). Returns the decision and
    /// whether the budget has changed; `None`, without a change, for any other budget.
    #[inline(always)]
    pub(crate) fn apply_single(
        &mut self,
        group: &LimitGroup,
        now: Timestamp,
        params: HitParams,
        effect: impl Fn(Fit) -> Effect,
    ) -> Option<(ChargedLimit, bool)> {
        let ([effective], States::One(slot)) = (&*group.limits, &mut self.states) else {
            return None;
        };
        if now >= self.expires {
            return None;
        }
        let step = effective
            .limit
            .step(slot, now, effective.demand(params), effect);
        let mut limit = effective.charged(&step);
        if step.stored {
            self.set_expiry(now, step.ttl, step.keeps_expiry);
        } else {
            cap_waits(&mut limit.decision, remaining_ttl(self.expires, now));
        }
        Some((limit, step.stored))
    }

    /// Whether a hit fits into all limits of the group: the worst fit of its limits. Writes nothing. With several
    /// groups the store calls it for each group before it calls [`apply`](Budget::apply) for any: all or nothing.
    pub(crate) fn fit(&self, group: &LimitGroup, now: Timestamp, params: HitParams) -> Fit {
        match self.reshaped(group.limits.len(), now) {
            None => self.fits_stored(group, now, params),
            Some(draft) => draft.fits_stored(group, now, params),
        }
    }

    /// Applies a hit to every limit of the group, and adds their decisions to `limits`. Returns whether the budget
    /// changed.
    ///
    /// `effect` maps the fit of a limit to its effect. With several limits all have been compared before, and it
    /// returns the same for each: all are charged, or none.
    pub(crate) fn apply(
        &mut self,
        group: &LimitGroup,
        now: Timestamp,
        params: HitParams,
        effect: impl Fn(Fit) -> Effect,
        limits: &mut ChargedLimits,
    ) -> bool {
        let Some(mut draft) = self.reshaped(group.limits.len(), now) else {
            return self.apply_stored(group, now, params, effect, limits);
        };
        let stored = draft.apply_stored(group, now, params, effect, limits);
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

    /// Steps every limit, and sets the expiry to the longest need.
    #[inline]
    fn apply_stored(
        &mut self,
        group: &LimitGroup,
        now: Timestamp,
        params: HitParams,
        effect: impl Fn(Fit) -> Effect,
        limits: &mut ChargedLimits,
    ) -> bool {
        let (before, first) = (self.expires, limits.len());
        let (mut stored, mut keeps_expiry, mut ttl) = (false, false, Duration::ZERO);
        for (effective, slot) in group.limits.iter().zip(self.states.as_mut_slice()) {
            let demand = effective.demand(params);
            let step = effective.limit.step(slot, now, demand, &effect);
            stored |= step.stored;
            keeps_expiry |= step.keeps_expiry;
            ttl = ttl.max(step.ttl);
            limits.push(effective.charged(&step));
        }
        if !stored {
            // The old expiry stays, and bounds the waits.
            let left = remaining_ttl(before, now);
            let own = limits[first..].iter_mut();
            own.for_each(|limit| cap_waits(&mut limit.decision, left));
            return false;
        }
        self.set_expiry(now, ttl, keeps_expiry);
        if !matches!(self.states, States::One(_)) {
            self.keep_rest(group.limits.len(), before, now);
        }
        true
    }

    /// Moves the expiry behind the need of the states just written.
    #[inline]
    fn set_expiry(&mut self, now: Timestamp, ttl: Duration, keeps_expiry: bool) {
        let before = self.expires;
        self.expires = expiry(before, now, micros(ttl));
        if keeps_expiry {
            self.expires = self.expires.max(before);
        }
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
        match &self.states {
            States::One(state) => state.as_ref().map_or(0, State::stored_entries),
            several => {
                let states = several.as_slice().iter().flatten();
                states.map(State::stored_entries).sum()
            }
        }
    }
}

/// The effect of a hit with this fit: a dry run, a cost of 0 and an impossible hit have none.
pub(crate) const fn effect_of(fit: Fit, params: HitParams) -> Effect {
    match (params.mode, fit) {
        (HitMode::Charge, Fit::Now) if params.cost > 0 => Effect::Charge,
        (HitMode::Charge, Fit::Later) => Effect::Deny,
        _ => Effect::None,
    }
}

#[cfg(test)]
mod tests;
