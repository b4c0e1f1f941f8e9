//! What one key has spent under one policy, and the step that decides a hit on it.

use std::time::Duration;

use super::Policy;
use crate::{
    algorithm::{Fit, Spend, State},
    decision::{Decision, LimitDecision, Outcome},
    limit::Limit,
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

/// A state for each limit; one is kept in place.
#[derive(Clone, Debug)]
enum States {
    One(Option<State>),
    Several(Box<[Option<State>]>),
}

impl Default for States {
    fn default() -> States {
        States::One(None)
    }
}

impl States {
    fn slots(&mut self) -> &mut [Option<State>] {
        match self {
            States::One(slot) => std::slice::from_mut(slot),
            States::Several(slots) => slots,
        }
    }

    fn as_slice(&self) -> &[Option<State>] {
        match self {
            States::One(slot) => std::slice::from_ref(slot),
            States::Several(slots) => slots,
        }
    }

    /// The same states, as many as there are limits.
    fn resized(&self, count: usize) -> States {
        if count == 1 {
            return States::One(self.as_slice().first().cloned().flatten());
        }
        let mut slots = self.as_slice().to_vec();
        slots.resize(count, None);
        States::Several(slots.into())
    }
}

impl Budget {
    /// Decides a hit and spends it, or nothing.
    pub(crate) fn hit(&mut self, policy: &Policy, now: Timestamp, cost: u64) -> Hitting {
        let count = policy.limits().len();
        let expired = now >= self.expires;
        if !expired && self.states.as_slice().len() == count {
            return self.hit_stored(policy, now, cost);
        }
        // What is stored does not fit the policy any more, and goes only when the hit is written.
        let stored = if expired {
            &States::One(None)
        } else {
            &self.states
        };
        let mut draft = Budget {
            expires: if expired {
                Timestamp::default()
            } else {
                self.expires
            },
            states: stored.resized(count),
        };
        let hitting = draft.hit_stored(policy, now, cost);
        if hitting.wrote {
            *self = draft;
        }
        hitting
    }

    fn hit_stored(&mut self, policy: &Policy, now: Timestamp, cost: u64) -> Hitting {
        let limits = policy.limits();
        let slots = self.states.slots();
        let fits = limits
            .iter()
            .zip(&*slots)
            .map(|(limit, slot)| limit.fit(slot.as_ref(), now, cost));
        let spend = match fits.max() {
            Some(Fit::Now) if cost > 0 => Spend::Charge,
            Some(Fit::Later) => Spend::Deny,
            _ => Spend::Nothing,
        };
        let writes = |(limit, slot): (&Limit, &Option<State>)| {
            limit.counts_denied() || limit.needs_repair(slot.as_ref(), now)
        };
        let rewritten = match spend {
            Spend::Charge => true,
            Spend::Deny => limits.iter().zip(&*slots).any(writes),
            Spend::Nothing => false,
        };
        let left = if rewritten {
            Duration::MAX
        } else {
            left_to_live(self.expires, now)
        };
        let mut need = Duration::ZERO;
        let steps = limits.iter().zip(slots).map(|(limit, slot)| {
            let stepped = limit.step(slot, now, cost, spend);
            need = need.max(stepped.need);
            capped(stepped.decision, left)
        });
        let decision = Decision::of_policy(now, steps);
        if rewritten {
            self.expires = expires(now, need);
        }
        Hitting {
            decision,
            wrote: rewritten,
        }
    }

    /// The moment from which nothing here counts.
    pub(crate) const fn expires(&self) -> Timestamp {
        self.expires
    }

    /// How long until every limit has something left.
    pub(crate) fn recovers_after(&self, policy: &Policy, now: Timestamp) -> Duration {
        let slots = self.states.as_slice();
        let waits = policy
            .limits()
            .iter()
            .zip(slots)
            .map(|(limit, slot)| limit.wait(slot.as_ref(), now, 1));
        waits.max().unwrap_or_default()
    }

    /// How many stamps of logs are kept.
    pub(crate) fn stamps(&self) -> usize {
        let stamps = |state: &State| match state {
            State::SlidingWindowLog(log) => log.len(),
            _ => 0,
        };
        self.states.as_slice().iter().flatten().map(stamps).sum()
    }
}

fn expires(now: Timestamp, need: Duration) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_add(ttl_micros(micros(need))))
}

/// What a hit on a budget came to.
pub(crate) struct Hitting {
    pub(crate) decision: Decision,
    pub(crate) wrote: bool,
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
