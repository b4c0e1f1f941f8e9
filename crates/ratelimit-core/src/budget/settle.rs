//! What happens to a charge after it was made: given back, raised, its slot released or renewed.

use crate::budget::{Budget, expires};
use crate::{
    algorithm::{Refund, Renewal, State},
    decision::RefundMark,
    limit::Limit,
    policy::{EffectiveLimit, LimitGroup},
    time::Timestamp,
};

/// A change to a charge, as one group of limits sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdjustmentRequest<'a> {
    pub(crate) change: Adjustment,
    pub(crate) cost: u64,
    /// When the charge was made, by the store's clock.
    pub(crate) charged_at: Timestamp,
    /// What each limit of the policy remembers of the charge.
    pub(crate) marks: &'a [RefundMark],
    pub(crate) slot: u64,
    pub(crate) now: Timestamp,
}

/// What is done to a charge after it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Adjustment {
    /// So many units are given back; with all of them the slot, too.
    Refund {
        /// How many.
        units: u64,
    },
    /// So many units more are charged, as far as there is room.
    Charge {
        /// How many.
        units: u64,
    },
    /// The slot is given back; what was spent stays so.
    Release,
    /// The slot is held for a whole lease from now.
    Renew,
}

/// What settling came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdjustmentResult {
    /// Whether anything was written.
    pub(crate) stored: bool,
    /// Whether a slot that was to be renewed is not held any more.
    pub(crate) lost: bool,
}

impl Budget {
    /// Changes a charge; states of limits that were added since stay as they are.
    pub(crate) fn settle(
        &mut self,
        group: &LimitGroup,
        settling: AdjustmentRequest<'_>,
    ) -> AdjustmentResult {
        let Some(mut draft) = self.reshaped(group.limits.len(), settling.now) else {
            return self.settle_stored(group, settling);
        };
        let settled = draft.settle_stored(group, settling);
        if settled.stored {
            *self = draft;
        }
        settled
    }

    fn settle_stored(
        &mut self,
        group: &LimitGroup,
        settling: AdjustmentRequest<'_>,
    ) -> AdjustmentResult {
        let mut settled = AdjustmentResult::default();
        let mut ttl = None;
        let before = self.expires;
        let tail = self.states.tail().filter(|tail| settling.now < tail.until);
        let reset_at = tail.and_then(|tail| tail.reset_at);
        let is_forgotten = reset_at.is_some_and(|reset_at| settling.charged_at <= reset_at);
        for (effective, slot) in group.limits.iter().zip(self.states.as_mut_slice()) {
            let lasting = match settling.change {
                Adjustment::Refund { units } => {
                    let units = if is_forgotten && effective.limit.counts_units() {
                        0
                    } else {
                        units
                    };
                    settled.stored |= give_back(effective, slot, settling, units);
                    continue;
                }
                Adjustment::Release => {
                    settled.stored |= release(effective, slot, settling.slot);
                    continue;
                }
                Adjustment::Charge { units } => {
                    effective.limit.charge_more(slot, units, settling.now)
                }
                Adjustment::Renew => match renew(effective, slot, settling) {
                    Some(Renewal::Extended(end)) => Some(end.since(settling.now)),
                    Some(Renewal::Lost) => {
                        settled.lost = true;
                        None
                    }
                    Some(Renewal::Unchanged) | None => None,
                },
            };
            settled.stored |= lasting.is_some();
            ttl = ttl.max(lasting);
        }
        if let Some(ttl) = ttl {
            self.expires = self.expires.max(expires(settling.now, ttl));
        }
        if settled.stored {
            self.keep_rest(group.limits.len(), before, settling.now);
        }
        settled
    }
}

fn give_back(
    effective: &EffectiveLimit,
    slot: &mut Option<State>,
    settling: AdjustmentRequest<'_>,
    units: u64,
) -> bool {
    if let Limit::Concurrency(_) = effective.limit {
        return units >= settling.cost && release(effective, slot, settling.slot);
    }
    let refund = Refund {
        units,
        cost: settling.cost,
        charged_at: settling.charged_at,
        mark: settling
            .marks
            .get(effective.index)
            .copied()
            .unwrap_or_default(),
        now: settling.now,
    };
    effective.limit.refund(slot, refund)
}

fn release(effective: &EffectiveLimit, slot: &mut Option<State>, id: u64) -> bool {
    match (effective.limit, slot) {
        (Limit::Concurrency(_), Some(State::Concurrency(slots))) => slots.release(id),
        _ => false,
    }
}

/// Renews a slot, if the limit has slots.
fn renew(
    effective: &EffectiveLimit,
    slot: &mut Option<State>,
    settling: AdjustmentRequest<'_>,
) -> Option<Renewal> {
    let Limit::Concurrency(concurrency) = effective.limit else {
        return None;
    };
    let Some(State::Concurrency(slots)) = slot else {
        return Some(Renewal::Lost);
    };
    Some(slots.renew(settling.slot, concurrency.lease(), settling.now))
}
