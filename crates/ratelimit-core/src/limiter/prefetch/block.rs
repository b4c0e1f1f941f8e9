//! A block: units of a hot key that the store charged in advance, and how long each may be spent.
//!
//! - A block is charged by an ordinary hit. Its cost is the share of the smallest limit.
//! - A unit expires when the exact limit would have given it back: at the end of its window, or when its bucket has
//!   refilled the units before it. Every hit that spends a unit is therefore one that an exact limiter lets pass at the
//!   same moment (`docs/guides/prefetch.md`).

use std::time::Duration;

use smallvec::SmallVec;

use super::clock::Moment;
use crate::{
    algorithm::Period,
    budget::Adjustment,
    decision::{Charged, Decision, LimitDecision, RefundMark},
    limit::Limit,
    policy::Policy,
    store::{Hit, Receipt},
    time::Timestamp,
};

/// The longest time for which a block may be spent, in microseconds: 1 s.
const MAX_LIFE: u64 = 1_000_000;
/// The fewest hits that a block must be able to pay.
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
        let windows = limits.filter(|limit| !is_bucket(limit));
        let periods = windows.map(|limit| limit.period_ticks().micros());
        BlockSize {
            units: units.unwrap_or(0),
            life: periods.fold(MAX_LIFE, u64::min),
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
    refills: SmallVec<[Refill; 1]>,
    /// Units that hits have spent.
    spent: u64,
    /// Units that hits have spent or buckets have refilled.
    used: u64,
    hits: u64,
}

impl Block {
    /// The block that `hit` charged; `None` if the store denied it.
    pub(super) fn new(hit: Hit<'_>, reply: Charged, sent: Moment) -> Option<Block> {
        let Charged {
            decision: reply,
            marks,
        } = reply;
        let policy = hit.policy;
        let limits = policy.groups().iter().flat_map(|group| &group.limits);
        let buckets = limits.filter(|effective| is_bucket(&effective.limit));
        let refills = buckets.filter_map(|effective| {
            let its = reply.limits().nth(effective.index)?;
            Some(Refill::new(&effective.limit, its, hit.cost, reply.now))
        });
        let refills: SmallVec<[Refill; 1]> = refills.collect();

        let life = Duration::from_micros(BlockSize::of(policy).life);
        let windows = policy.limits().iter().filter(|limit| !is_bucket(limit));
        let window_ends = windows.map(|limit| {
            let period = limit.period_ticks();
            period.window_end(period.tick(reply.now))
        });
        let refilled = refills.iter().map(|refill| refill.end(hit.cost));
        let end = window_ends.chain(refilled).min();

        // A bucket that refills the block within its life gives it back without a refund. A refund would shorten the
        // time after which the units of other instances expire.
        let marks = marks.into_iter().zip(policy.limits());
        let marks = marks.map(|(mark, limit)| {
            if is_bucket(limit) && refill_time(limit, hit.cost) <= MAX_LIFE {
                RefundMark::NONE
            } else {
                mark
            }
        });
        let receipt = reply
            .is_allowed()
            .then(|| Receipt::from_marks(hit, reply.now, marks))??;
        Some(Block {
            receipt,
            sent,
            end: end.map_or(reply.now + life, |end| end.min(reply.now + life)),
            refills,
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
        let unused = self.unused(now);
        if self.life_left(now) > 0 { unused } else { 0 }
    }

    /// The units that no hit has spent and no bucket has refilled.
    fn unused(&mut self, now: Moment) -> u64 {
        let (at, units) = (self.store_time(now), self.receipt.cost());
        let refilled = self.refills.iter().map(|refill| refill.units(at)).max();
        self.used = self.used.max(refilled.unwrap_or(0).min(units));
        units - self.used
    }

    /// Spends `cost` units, all or nothing, and returns the decision of the hit.
    pub(super) fn try_spend(&mut self, cost: u64, now: Moment) -> Option<Decision> {
        let left = self.left(now).checked_sub(cost)?;
        self.used += cost;
        self.spent += cost;
        self.hits += 1;
        let mut decision = with_units(&self.reply, left, self.store_time(now));
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

    /// The charge of the block.
    pub(super) const fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// The refund of what is left, if a limit needs one.
    pub(super) fn refund(&mut self, now: Moment) -> Option<Adjustment> {
        let units = self.unused(now);
        let mut limits = self.receipt.policy().limits().iter();
        let needs_refund = limits
            .any(|limit| !is_bucket(limit) || refill_time(limit, self.receipt.cost()) > MAX_LIFE);
        (units > 0 && needs_refund).then_some(Adjustment::Refund { units })
    }

    /// The microseconds until no unit may be spent.
    pub(super) fn life_left(&self, now: Moment) -> u64 {
        let now = self.store_time(now).as_micros();
        self.end.as_micros().saturating_sub(now)
    }
}

/// How a bucket refills the units of a block, the first one first. A unit is worth `period.ticks` of debt.
#[derive(Clone, Copy, Debug)]
struct Refill {
    /// The debt that is refilled before the first unit.
    ahead: u64,
    /// The debt that each tick refills.
    rate: u64,
    period: Period,
    /// The tick of the charge.
    from: u64,
}

impl Refill {
    /// The refill of `units` that were charged at `now` and left `reply`.
    fn new(limit: &Limit, reply: LimitDecision, units: u64, now: Timestamp) -> Refill {
        let period = limit.period_ticks();
        // `remaining` is rounded down, so one unit of debt may be less than it seems. Units that are refunded may
        // be ahead in a slow bucket, so nothing counts there.
        let ahead = if refill_time(limit, units) <= MAX_LIFE {
            let known = reply.limit - reply.remaining.min(reply.limit);
            known.saturating_sub(units).saturating_sub(1)
        } else {
            0
        };
        Refill {
            ahead: ahead.saturating_mul(period.ticks),
            rate: limit.per_period(),
            period,
            from: period.tick(now),
        }
    }

    /// The units that are refilled at `at`, in full or in part.
    fn units(&self, at: Timestamp) -> u64 {
        let elapsed = self.period.tick(at).saturating_sub(self.from);
        let refilled = elapsed.saturating_mul(self.rate);
        let refilled = refilled.saturating_sub(self.ahead);
        refilled.div_ceil(self.period.ticks)
    }

    /// When the last of `units` begins to be refilled.
    fn end(&self, units: u64) -> Timestamp {
        let before = self.ahead + units.saturating_sub(1) * self.period.ticks;
        self.period.start_of(self.from + before / self.rate + 1)
    }
}

/// The microseconds in which a bucket refills `units`.
pub(super) fn refill_time(limit: &Limit, units: u64) -> u64 {
    let period = u128::from(limit.period_ticks().micros());
    let micros = u128::from(units) * period / u128::from(limit.per_period());
    u64::try_from(micros).unwrap_or(u64::MAX)
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
