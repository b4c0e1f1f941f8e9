//! Changes to a charge after the hit: refund, later charge, release and renewal of a slot.
//!
//! - A refund credits nothing but the charge of its own receipt, and never prolongs the life of a
//!   budget (`docs/decisions/0008-settling.md`).
//! - A budget does not record which receipts were settled. The limiter applies a receipt once; a
//!   second refund could credit the charges of other hits.
//! - `lua/settle.lua` is the twin in Redis.

use crate::budget::{Budget, expiry};
use crate::{
    algorithm::{Refund, Renewal, State},
    decision::RefundMark,
    limit::Limit,
    policy::{EffectiveLimit, LimitGroup, MAX_LIMITS},
    time::{Timestamp, micros},
};

/// An adjustment of one charge, as one group of limits sees it.
///
/// All times are of the clock of the store, so `now` can be before `charged_at` after a step back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdjustmentRequest<'a> {
    /// The adjustment.
    pub(crate) change: Adjustment,
    /// The units that the hit was charged; above 0.
    pub(crate) cost: u64,
    /// The time of the charge by the clock of the store.
    pub(crate) charged_at: Timestamp,
    /// The refund mark of each limit of the policy, by the index of the limit in the policy, not in
    /// the group. It may be shorter than the policy.
    pub(crate) marks: &'a [RefundMark],
    /// The id of the slot that the hit holds; 0 without one. Release and renewal need nothing else.
    pub(crate) slot: u64,
    /// The present time of the store.
    pub(crate) now: Timestamp,
}

/// A change to a charge that was made earlier, as a [`Store`](crate::store::Store) receives it.
///
/// | adjustment | units | slot | expiry of the budget |
/// |---|---|---|---|
/// | `Refund` | given back | released with the whole cost | unchanged |
/// | `Charge` | charged, as far as there is room | unchanged | may move to a later time |
/// | `CatchUp` | charged, as far as there is room | unchanged | may move to a later time |
/// | `Credit` | given back, of any hits | unchanged | may move to a later time |
/// | `Release` | unchanged | released | unchanged |
/// | `Renew` | unchanged | held for a whole lease from now | may move to a later time |
///
/// Applications use [`Limiter::settle`](crate::Limiter::settle) or
/// [`Reservation::settle`](crate::Reservation::settle), which compare the actual cost with the
/// charged one and choose between a refund and a later charge:
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy, store::Hit};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let limiter = Limiter::in_memory();
/// let tokens = Policy::parse("tokens", "sliding_window_log 1000/d")?;
/// let alice = Key::new("alice")?;
///
/// let (_, reservation) = limiter.reserve(Hit::new(&tokens, &alice).cost(500)).await;
/// reservation.expect("the hit passed").settle(120).await?;
/// assert_eq!(limiter.peek(&tokens, &alice).await.decision().unwrap().remaining, 880);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "settle")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Adjustment {
    /// Gives units back. The refund of the whole cost also releases the slot.
    #[doc(alias = "rollback")]
    Refund {
        /// The units to give back. More than the charged cost counts as the cost.
        units: u64,
    },
    /// Charges more units, as far as there is room; the rest is forgiven.
    Charge {
        /// The additional units.
        units: u64,
    },
    /// Charges units that passed locally while the store did not answer, now, as far as there is capacity.
    ///
    /// A budget that was reset after the time of the receipt is charged nothing.
    #[non_exhaustive]
    CatchUp {
        /// The units of each limit, by its index in the policy. Read it with `get`: its length is the maximum number of
        /// limits of a policy, which may grow.
        units: [u64; MAX_LIMITS],
    },
    /// Gives units back, whichever hits spent them, down to nothing spent. It needs no charge.
    ///
    /// A log gives its oldest units back. Concurrency limits and penalty boxes stay as they are.
    Credit {
        /// The units to give back.
        units: u64,
    },
    /// Releases the slot. The units stay spent.
    Release,
    /// Extends the lease of the slot to a whole lease from now.
    Renew,
}

impl Adjustment {
    /// A [`CatchUp`](Adjustment::CatchUp) of `units` for each limit, by its index in the policy.
    ///
    /// Limits beyond the end of `units` are charged nothing, and units beyond the maximum number of limits are ignored.
    pub fn catch_up(units: &[u64]) -> Adjustment {
        let mut all = [0; MAX_LIMITS];
        for (to, from) in all.iter_mut().zip(units) {
            *to = *from;
        }
        Adjustment::CatchUp { units: all }
    }

    /// Whether it changes the limits of a group.
    #[cfg(feature = "redis")]
    pub(crate) fn changes(&self, group: &LimitGroup) -> bool {
        match self {
            Adjustment::CatchUp { units } => group.limits.iter().any(|own| units[own.index] > 0),
            _ => true,
        }
    }
}

/// The result of an adjustment, over all limits of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdjustmentResult {
    /// Whether the budget changed. The Redis twin replies `SETTLED_APPLIED`.
    pub(crate) stored: bool,
    /// Whether a slot that was to be renewed is not held any more. The Redis twin replies
    /// `SETTLED_LEASE_LOST`.
    pub(crate) lost: bool,
}

impl Budget {
    /// Adjusts a charge. States of limits that were added since the charge stay as they are.
    ///
    /// An expired or too short budget is adjusted as a draft, which replaces it only if something
    /// was written. A refund of an expired budget therefore stores nothing.
    ///
    /// A later charge can make a budget out of an expired one: it is charged now, not at the time
    /// of the hit.
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

    /// Adjusts the state of each limit and keeps the expiry at the latest need.
    ///
    /// The limits are independent here. Unlike a hit, an adjustment is not all or nothing: each
    /// limit gives back or charges as much as it can.
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
        // A receipt from before the last reset, or from the same microsecond, refunds no units:
        // they have been forgotten already. Its slot can still be released.
        let is_forgotten = reset_at.is_some_and(|reset_at| settling.charged_at <= reset_at);
        for (effective, slot) in group.limits.iter().zip(self.states.as_mut_slice()) {
            let lasting = match settling.change {
                Adjustment::Refund { units } => {
                    let units = if is_forgotten && effective.limit.counts_units() {
                        0
                    } else {
                        units
                    };
                    // A refund and a release do not move the expiry: they never make a state live
                    // longer.
                    settled.stored |= give_back(effective, slot, settling, units);
                    continue;
                }
                Adjustment::Release => {
                    settled.stored |= release(effective, slot, settling.slot);
                    continue;
                }
                Adjustment::Credit { units } => effective.limit.credit(slot, units, settling.now),
                Adjustment::Charge { units } => {
                    effective.limit.charge_more(slot, units, settling.now)
                }
                Adjustment::CatchUp { units } => {
                    let units = units.get(effective.index).filter(|_| !is_forgotten);
                    let units = units.copied().unwrap_or(0);
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
            // The expiry only grows. Other limits of the group may need the budget for longer than
            // this charge.
            self.expires = before.max(expiry(before, settling.now, micros(ttl)));
        }
        if settled.stored {
            self.keep_rest(group.limits.len(), before, settling.now);
        }
        settled
    }
}

/// Refunds units of one limit; a concurrency limit releases its slot once the whole cost is
/// refunded. Returns whether the state changed.
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
        // A limit that was added after the charge has no mark, and the default mark refunds
        // nothing.
        mark: settling
            .marks
            .get(effective.index)
            .copied()
            .unwrap_or_default(),
        now: settling.now,
    };
    effective.limit.refund(slot, refund)
}

/// Releases the slot, if this limit has slots. Returns whether it was held.
fn release(effective: &EffectiveLimit, slot: &mut Option<State>, id: u64) -> bool {
    match (effective.limit, slot) {
        (Limit::Concurrency(_), Some(State::Concurrency(slots))) => slots.release(id),
        _ => false,
    }
}

/// Renews the slot; `None` for a limit without slots. A budget without a state of slots has lost
/// it.
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
