//! A block: units of a hot key that the store charged in advance, and how long each may be spent.
//!
//! - A block is charged by an ordinary hit. Its cost is the share of the smallest limit.
//! - A unit expires when the exact limit would have given it back: at the end of its window, or when a bucket has
//!   refilled as many units since. Every hit that spends a unit is therefore one that an exact limiter lets pass at the
//!   same moment (`docs/guides/prefetch.md`).

use std::time::Duration;

use super::clock::Moment;
use crate::{
    budget::Adjustment,
    decision::{Decision, LimitDecision},
    limit::Limit,
    policy::Policy,
    store::{Hit, Receipt},
    time::Timestamp,
};

/// The longest time for which a block may be spent: 1 s.
const MAX_LIFE: u64 = 1_000_000;
/// The fewest hits for which a block must be large enough.
const MIN_HITS: u64 = 4;

/// The size of the blocks of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockSize {
    pub(super) units: u64,
    /// How long a block may be spent at most, in microseconds.
    pub(super) life: u64,
}

impl BlockSize {
    /// The size under the limits of `policy`; 0 units without [`Policy::with_prefetch`].
    pub(super) fn of(policy: &Policy) -> BlockSize {
        let percent = policy.prefetch().unwrap_or(0);
        let limits = policy.limits().iter();
        let units = limits.clone().map(|limit| share_of(limit, percent)).min();
        let units = units.unwrap_or(0);
        let life = |limit: &Limit| {
            let period = limit.period_ticks().micros();
            if is_bucket(limit) {
                let refill =
                    u128::from(units) * u128::from(period) / u128::from(limit.per_period());
                u64::try_from(refill).unwrap_or(MAX_LIFE)
            } else {
                period
            }
        };
        BlockSize {
            units,
            life: limits.map(life).fold(MAX_LIFE, u64::min),
        }
    }

    /// Whether a block pays enough hits of this cost to be worth a call.
    pub(super) const fn is_worth(&self, cost: u64) -> bool {
        self.units >= MIN_HITS.saturating_mul(cost)
    }
}

/// The share of a limit, in units, rounded down.
pub(super) fn share_of(limit: &Limit, percent: u32) -> u64 {
    let share = u128::from(limit.capacity()) * u128::from(percent) / 100;
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Units that one hit charged in advance. All times are those of the store.
#[derive(Debug)]
pub(super) struct Block {
    /// The charge, to return what is left of it.
    receipt: Receipt,
    /// The reply to the charge. Later decisions report its numbers.
    reply: Decision,
    /// When the charge was sent. Ages are measured from here, so they are never too short.
    sent: Moment,
    end: Timestamp,
    /// Units that hits have spent.
    spent: u64,
    /// Units that are spent or have expired.
    used: u64,
    hits: u64,
}

impl Block {
    /// The block that `hit` charged; `None` if the store denied it.
    pub(super) fn new(hit: Hit<'_>, reply: Decision, sent: Moment) -> Option<Block> {
        let receipt = Receipt::new(hit, &reply)?;
        let window_ends = hit.policy.limits().iter().filter(|limit| !is_bucket(limit));
        let window_ends = window_ends.map(|limit| {
            let period = limit.period_ticks();
            period.window_end(period.tick(reply.now))
        });
        let last = reply.now + Duration::from_micros(BlockSize::of(hit.policy).life);
        Some(Block {
            receipt,
            sent,
            end: window_ends.fold(last, Timestamp::min),
            reply,
            spent: 0,
            used: 0,
            hits: 0,
        })
    }

    /// The time of the store at `now`, never too early.
    fn store_time(&self, now: Moment) -> Timestamp {
        self.reply.now + Duration::from_micros(now.age_since(self.sent))
    }

    /// The units that may still be spent.
    pub(super) fn left(&mut self, now: Moment) -> u64 {
        let at = self.store_time(now);
        let expired = if at >= self.end {
            self.receipt.cost()
        } else {
            self.restored(at)
        };
        self.used = self.used.max(expired.min(self.receipt.cost()));
        self.receipt.cost() - self.used
    }

    /// The units that buckets have refilled since the charge, rounded up.
    fn restored(&self, at: Timestamp) -> u64 {
        let groups = self.receipt.policy().groups().iter();
        let limits = groups.flat_map(|group| &group.limits);
        let buckets = limits
            .map(|effective| &effective.limit)
            .filter(|limit| is_bucket(limit));
        let restored = buckets.map(|limit| {
            let period = limit.period_ticks();
            let elapsed = period.tick(at) - period.tick(self.reply.now);
            let refill = elapsed.saturating_mul(limit.per_period());
            refill.div_ceil(period.ticks)
        });
        restored.max().unwrap_or(0)
    }

    /// Spends `cost` units, all or nothing, and returns the decision of the hit.
    pub(super) fn try_spend(&mut self, cost: u64, now: Moment) -> Option<Decision> {
        let left = self.left(now).checked_sub(cost)?;
        self.used += cost;
        self.spent += cost;
        self.hits += 1;
        let at = self.store_time(now);
        let mut decision = with_units(&self.reply, left, at);
        decision.is_prefetched = true;
        Some(decision)
    }

    /// Whether half of the block is used, by hits or by time, and enough hits were paid to be worth another one.
    pub(super) fn is_half_used(&self) -> bool {
        let half = self.receipt.cost() / 2;
        self.used >= half && (self.spent >= half || self.hits >= 2 * MIN_HITS)
    }

    /// The units that no hit has spent.
    pub(super) const fn unspent(&self) -> u64 {
        self.receipt.cost() - self.spent
    }

    /// The refund of these units. The store gives no unit back that time has restored.
    pub(super) const fn refund(&self) -> Adjustment {
        Adjustment::Refund {
            units: self.unspent(),
        }
    }

    /// The charge of the block.
    pub(super) const fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// The microseconds until no unit may be spent.
    pub(super) fn life_left(&self, now: Moment) -> u64 {
        self.end
            .as_micros()
            .saturating_sub(self.store_time(now).as_micros())
    }
}

/// The decision with `units` more left of each limit, as it stands at `now`. It cannot be refunded.
pub(super) fn with_units(decision: &Decision, units: u64, now: Timestamp) -> Decision {
    let elapsed = now.since(decision.now);
    let limits = decision.limits().map(|known| {
        let mut limit = LimitDecision::new(known.outcome, known.limit);
        limit.remaining = known.remaining.saturating_add(units).min(known.limit);
        limit.reset_after = known.reset_after.saturating_sub(elapsed);
        limit.is_over = known.is_over;
        limit
    });
    Decision::from_limits(now, limits)
}

/// Whether the limit gives units back as time passes. All other limits that can be prefetched are windows.
const fn is_bucket(limit: &Limit) -> bool {
    matches!(limit, Limit::TokenBucket(_) | Limit::LeakyBucket(_))
}
