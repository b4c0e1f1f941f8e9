//! What happens to a charge after it was made: given back, raised, its slot released or renewed.

use super::{Budget, expires};
use crate::{
    algorithm::{Refund, Renewed, State},
    decision::Mark,
    limit::Limit,
    policy::group::{Bound, Group},
    time::Timestamp,
};

/// A change to a charge, as one group of limits sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settling<'a> {
    pub(crate) change: Change,
    pub(crate) cost: u64,
    /// When the charge was made, by the store's clock.
    pub(crate) charged_at: Timestamp,
    /// What each limit of the policy remembers of the charge.
    pub(crate) marks: &'a [Mark],
    pub(crate) slot: u64,
    pub(crate) now: Timestamp,
}

/// What is done to a charge after it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
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
pub(crate) struct Settled {
    /// Whether anything was written.
    pub(crate) wrote: bool,
    /// Whether a slot that was to be renewed is not held any more.
    pub(crate) lost: bool,
}

impl Budget {
    /// Changes a charge; states of limits that were added since stay as they are.
    pub(crate) fn settle(&mut self, group: &Group, settling: Settling<'_>) -> Settled {
        let Some(mut draft) = self.draft(group.bounds.len(), settling.now) else {
            return self.settle_stored(group, settling);
        };
        let settled = draft.settle_stored(group, settling);
        if settled.wrote {
            *self = draft;
        }
        settled
    }

    fn settle_stored(&mut self, group: &Group, settling: Settling<'_>) -> Settled {
        let mut settled = Settled::default();
        let mut need = None;
        let before = self.expires;
        let tail = self.states.tail().filter(|tail| settling.now < tail.until);
        let reset_at = tail.and_then(|tail| tail.reset_at);
        let is_forgotten = reset_at.is_some_and(|reset_at| settling.charged_at <= reset_at);
        for (bound, slot) in group.bounds.iter().zip(self.states.as_mut_slice()) {
            let lasting = match settling.change {
                Change::Refund { units } => {
                    let units = if is_forgotten && bound.limit.has_units() {
                        0
                    } else {
                        units
                    };
                    settled.wrote |= give_back(bound, slot, settling, units);
                    continue;
                }
                Change::Release => {
                    settled.wrote |= release(bound, slot, settling.slot);
                    continue;
                }
                Change::Charge { units } => bound.limit.charge_more(slot, units, settling.now),
                Change::Renew => match renew(bound, slot, settling) {
                    Some(Renewed::Until(end)) => Some(end.since(settling.now)),
                    Some(Renewed::Lost) => {
                        settled.lost = true;
                        None
                    }
                    Some(Renewed::HeldLonger) | None => None,
                },
            };
            settled.wrote |= lasting.is_some();
            need = need.max(lasting);
        }
        if let Some(need) = need {
            self.expires = self.expires.max(expires(settling.now, need));
        }
        if settled.wrote {
            self.keep_rest(group.bounds.len(), before, settling.now);
        }
        settled
    }
}

fn give_back(bound: &Bound, slot: &mut Option<State>, settling: Settling<'_>, units: u64) -> bool {
    if let Limit::Concurrency(_) = bound.limit {
        return units >= settling.cost && release(bound, slot, settling.slot);
    }
    let refund = Refund {
        units,
        cost: settling.cost,
        charged_at: settling.charged_at,
        mark: settling.marks.get(bound.place).copied().unwrap_or_default(),
        now: settling.now,
    };
    bound.limit.refund(slot, refund)
}

fn release(bound: &Bound, slot: &mut Option<State>, id: u64) -> bool {
    match (bound.limit, slot) {
        (Limit::Concurrency(_), Some(State::Concurrency(slots))) => slots.release(id),
        _ => false,
    }
}

/// Renews a slot, if the limit has slots.
fn renew(bound: &Bound, slot: &mut Option<State>, settling: Settling<'_>) -> Option<Renewed> {
    let Limit::Concurrency(concurrency) = bound.limit else {
        return None;
    };
    let Some(State::Concurrency(slots)) = slot else {
        return Some(Renewed::Lost);
    };
    Some(slots.renew(settling.slot, concurrency.lease(), settling.now))
}
