//! What is known of a charge, so that it can be changed later.

mod codec;

use std::{num::NonZeroU32, time::Duration};

use smallvec::SmallVec;

pub use self::codec::InvalidReceipt;
use crate::store::hit::Hit;
use crate::{
    budget::{Adjustment, AdjustmentRequest},
    decision::{Decision, RefundMark},
    key::Key,
    key_set::KeySet,
    limit::Limit,
    policy::{HitMode, LimitGroup, Policy},
    time::Timestamp,
};

/// No receipt can be redeemed for longer than the longest period of a limit.
const LONGEST_LIFE: Duration = Duration::from_secs(366 * 86_400);

/// What is known of a charge: whose, how much and when.
///
/// A receipt belongs to one decision. What is given back by it is never more than what that decision
/// charged and time has not given back since.
///
/// When limits change between the charge and the refund:
///
/// - A bucket whose period has changed since gives nothing back, also when the period is the same again.
/// - A bucket whose refill has changed, but not its period, forgives the charge at the refill of the receipt's
///   limits. If hits under a larger refill were made in between, up to the cost of the charge may be given back
///   although time had forgiven it.
/// - The same holds when a limit of another algorithm had the same position in the policy in between.
#[derive(Clone, Debug)]
pub struct Receipt {
    policy: Policy,
    keys: KeySet,
    cost: u64,
    slot: u64,
    charged_at: Timestamp,
    expires: Timestamp,
    origin: ChargedBy,
    /// What each limit remembers of the charge.
    marks: SmallVec<[RefundMark; 2]>,
}

/// The store that a charge was made in, and that every change to it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargedBy {
    /// The limiter's.
    Store,
    /// That of the process, because the other did not answer.
    Local,
    /// The same, under this instance's share of the limits.
    LocalShare { instances: NonZeroU32 },
}

impl Receipt {
    /// The receipt of a hit that passed; nothing where nothing was charged.
    pub fn new(hit: Hit<'_>, decision: &Decision) -> Option<Receipt> {
        if !decision.is_allowed() {
            return None;
        }
        Receipt::from_marks(hit, decision.now, decision.refund_marks())
    }

    pub(crate) fn from_marks(
        hit: Hit<'_>,
        charged_at: Timestamp,
        marks: impl Iterator<Item = RefundMark>,
    ) -> Option<Receipt> {
        let is_charged = hit.cost > 0 && hit.mode == HitMode::Charge;
        is_charged.then(|| Receipt {
            policy: hit.policy.clone(),
            keys: hit.keys(),
            cost: hit.cost,
            slot: hit.slot,
            charged_at,
            expires: charged_at + life(hit.policy),
            origin: ChargedBy::Store,
            marks: marks.collect(),
        })
    }

    /// The same receipt, of a charge in that store.
    pub(crate) fn charged_in(mut self, origin: ChargedBy) -> Receipt {
        self.origin = origin;
        self
    }

    pub(crate) const fn charged_by(&self) -> ChargedBy {
        self.origin
    }

    /// Whether the process charged it by itself, because the store did not answer.
    pub const fn is_local(&self) -> bool {
        !matches!(self.origin, ChargedBy::Store)
    }

    /// Under which limits it was charged.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whose budgets were charged.
    pub const fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// How much was charged.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The number of the charge, which is that of its slot under policies with a concurrency limit.
    pub const fn slot(&self) -> u64 {
        self.slot
    }

    /// The lease of its slot, under policies with a concurrency limit: the shortest.
    pub fn lease(&self) -> Option<Duration> {
        let leases = self.policy.limits().iter().filter_map(|limit| match limit {
            Limit::Concurrency(slots) => Some(slots.lease()),
            _ => None,
        });
        leases.min()
    }

    /// When it was charged, by the store's clock.
    pub const fn charged_at(&self) -> Timestamp {
        self.charged_at
    }

    /// When time has given back all of it, at the latest; from then on it cannot be redeemed.
    pub const fn expires_at(&self) -> Timestamp {
        self.expires
    }

    /// The key that a group of limits counted by.
    pub(crate) fn key_for(&self, group: &LimitGroup) -> &Key {
        match group.by.as_deref() {
            Some(name) => self.keys.get(name),
            None => self.keys.primary(),
        }
    }

    /// What makes it as if `actual` had been charged; nothing where it was.
    pub(crate) const fn adjustment_to(&self, actual: u64) -> Option<Adjustment> {
        match actual.checked_sub(self.cost) {
            None => Some(Adjustment::Refund {
                units: self.cost - actual,
            }),
            Some(0) => None,
            Some(units) => Some(Adjustment::Charge { units }),
        }
    }

    pub(crate) fn request(&self, change: Adjustment, now: Timestamp) -> AdjustmentRequest<'_> {
        let change = match change {
            // More than the cost would refund the charges of other hits.
            Adjustment::Refund { units } => Adjustment::Refund {
                units: units.min(self.cost),
            },
            other => other,
        };
        AdjustmentRequest {
            change,
            cost: self.cost,
            charged_at: self.charged_at,
            marks: &self.marks,
            slot: self.slot,
            now,
        }
    }
}

/// How long a charge can count: until a bucket is whole again, or a window and the next are over.
fn life(policy: &Policy) -> Duration {
    let limits = policy.groups().iter().flat_map(|group| &group.limits);
    let lives = limits.map(|effective| {
        let periods = effective.limit.capacity() / effective.limit.per_period().max(1);
        let periods = u32::try_from(periods).unwrap_or(u32::MAX).saturating_add(2);
        effective.limit.period().saturating_mul(periods)
    });
    lives.max().unwrap_or_default().min(LONGEST_LIFE)
}
