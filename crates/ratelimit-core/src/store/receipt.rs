//! Receipts: the identity of a charge, so that it can be changed later.
//!
//! A receipt is plain data. It holds no lock, no slot and no connection, and any process that has
//! the policy can use it.

mod codec;

use std::{num::NonZeroU32, time::Duration};

pub use self::codec::InvalidReceipt;
use crate::store::hit::Hit;
use crate::{
    budget::{Adjustment, AdjustmentRequest},
    decision::{Charged, Decision, RefundMark, RefundMarks},
    key::Key,
    key_set::KeySet,
    limit::Limit,
    policy::{HitMode, LimitGroup, Policy},
    time::Timestamp,
};

/// Maximum time between a charge and the expiry of its receipt: the longest period of a limit, 366
/// days.
///
/// The mark of a settled receipt lives until then, so this also bounds the memory of settled
/// receipts.
const MAX_LIFE: Duration = Duration::from_secs(366 * 86_400);

/// Identifies a charge: its policy, keys, cost and time.
///
/// - [`Reservation::into_receipt`](crate::Reservation::into_receipt) and [`Receipt::new`] make one.
///   [`Receipt::to_bytes`] stores it outside of the process.
/// - [`Limiter::settle`](crate::Limiter::settle) uses it once. [`Limiter::release`](crate::Limiter::release) and
///   [`Limiter::renew`](crate::Limiter::renew) may be repeated.
/// - A receipt belongs to one decision. A refund credits at most the units that this decision charged and that time
///   has not restored since.
/// - A receipt holds nothing: dropping it leaves the charge, and a slot until its lease ends.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy, SettleError, store::Hit};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let limiter = Limiter::in_memory();
/// let policy = Policy::parse("export", "fixed_window 10/d")?;
/// let alice = Key::new("alice")?;
/// let (_, reservation) = limiter.reserve(Hit::new(&policy, &alice).cost(4)).await;
/// let receipt = reservation.expect("the hit was allowed").into_receipt();
/// assert_eq!((receipt.cost(), receipt.policy().name()), (4, "export"));
///
/// limiter.settle(&receipt, 1).await?;
/// let left = limiter.peek(&policy, &alice).await;
/// assert_eq!(left.decision().unwrap().remaining, 9);
/// let again = limiter.settle(&receipt, 0).await;
/// assert!(matches!(again, Err(SettleError::AlreadySettled)));
/// # Ok(())
/// # }
/// ```
///
/// When limits change between the charge and the refund:
///
/// - A bucket whose period has changed since refunds nothing, even if the period has changed back.
/// - A bucket whose refill has changed, but not its period, computes the refund with the refill of the receipt's
///   limits. If hits under a larger refill were made in between, the refund may credit units that time had restored
///   already, at most the cost of the charge.
/// - The same applies when a limit of another algorithm had the same position in the policy in between.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The policy of the key's tier; under [`ChargedBy::LocalShare`] the share of it.
    policy: Policy,
    /// The keys that were charged, by name.
    keys: KeySet,
    /// Units; above 0.
    cost: u64,
    /// The number of the charge, and of its slot under a concurrency limit; 0 for neither. A slot
    /// is released by this number alone.
    slot: u64,
    /// When the hit was charged, by the store's clock. Windows and logs find the charge by it, and
    /// buckets the age of the debt. A charge on several cluster nodes has the time of the last one.
    charged_at: Timestamp,
    /// `charged_at` plus the longest time that the charge can count, at most [`MAX_LIFE`].
    expires: Timestamp,
    /// The store that made the charge.
    origin: ChargedBy,
    /// One mark for each limit, in the order of the policy: it bounds what the limit gives back.
    marks: RefundMarks,
}

/// The store that made a charge. Every change to the charge goes to the same store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargedBy {
    /// The limiter's own store.
    Store,
    /// The memory store of [`FailureMode::Local`](crate::FailureMode::Local), because the other did not answer.
    Local,
    /// The same memory store, under this instance's share of the limits.
    LocalShare {
        /// The number of instances that shared the limits when the hit was charged.
        instances: NonZeroU32,
    },
}

impl Receipt {
    /// Makes the receipt of an allowed hit. Returns `None` for a denial, a peek and a dry run.
    ///
    /// `hit` must be the hit that `charged` answers, with its slot number. Another hit would
    /// refund another charge; the store cannot detect that.
    pub fn new(hit: Hit<'_>, charged: &Charged) -> Option<Receipt> {
        Receipt::of_charge(hit, &charged.decision, &charged.marks)
    }

    /// Makes the receipt of an allowed hit from its decision and the marks of its charge.
    pub(crate) fn of_charge(
        hit: Hit<'_>,
        decision: &Decision,
        marks: &[RefundMark],
    ) -> Option<Receipt> {
        if !decision.is_allowed() {
            return None;
        }
        Receipt::from_marks(hit, decision.now, marks.iter().copied())
    }

    /// Makes a receipt from the marks alone, for stores that have them without a decision. Returns
    /// `None` for a hit that charges nothing.
    ///
    /// Missing marks count as [`RefundMark::NONE`]: such a receipt releases a slot and refunds no
    /// units.
    pub(crate) fn from_marks(
        hit: Hit<'_>,
        charged_at: Timestamp,
        marks: impl Iterator<Item = RefundMark>,
    ) -> Option<Receipt> {
        // A peek and a dry run charge nothing, so there is nothing to identify.
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

    /// The receipt by which units are charged that passed locally, the last of them at `charged_at`.
    #[cfg(feature = "tokio")]
    pub(crate) fn of_units(hit: &Hit<'_>, charged_at: Timestamp) -> Option<Receipt> {
        let mut charged = hit.cost(1);
        charged.mode = HitMode::Charge;
        Receipt::from_marks(charged, charged_at, std::iter::empty())
    }

    /// Returns the receipt for a charge in another store, such as that of the failure mode.
    pub(crate) fn charged_in(mut self, origin: ChargedBy) -> Receipt {
        self.origin = origin;
        self
    }

    /// The store that made the charge.
    pub(crate) const fn charged_by(&self) -> ChargedBy {
        self.origin
    }

    /// Whether the failure mode charged it in this process, because the store did not answer.
    ///
    /// Such a receipt is of no use in another process, nor after a restart.
    pub const fn is_local(&self) -> bool {
        !matches!(self.origin, ChargedBy::Store)
    }

    /// The policy under which it was charged, that of the key's tier.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The keys whose budgets were charged.
    pub const fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// The units that were charged.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The number of the charge. Under a policy with a concurrency limit it is the number of the slot.
    pub const fn slot(&self) -> u64 {
        self.slot
    }

    /// The shortest lease of its slots, or `None` without a concurrency limit. Renew the slot more often than this.
    pub fn lease(&self) -> Option<Duration> {
        let leases = self.policy.limits().iter().filter_map(|limit| match limit {
            Limit::Concurrency(slots) => Some(slots.lease()),
            _ => None,
        });
        leases.min()
    }

    /// When the hit was charged, by the store's clock.
    pub const fn charged_at(&self) -> Timestamp {
        self.charged_at
    }

    /// When time has restored all of the charge, at the latest. From then on there is nothing to refund.
    ///
    /// A slot can be renewed beyond this time.
    pub const fn expires_at(&self) -> Timestamp {
        self.expires
    }

    /// The key that a group of limits counted by; the primary key if the receipt does not have that name.
    pub(crate) fn key_for(&self, group: &LimitGroup) -> &Key {
        match group.by.as_deref() {
            Some(name) => self.keys.get(name),
            None => self.keys.primary(),
        }
    }

    /// The change from the charged cost to `actual`, or `None` if they are equal. A lower cost is a
    /// refund, a higher one a later charge.
    pub(crate) const fn adjustment_to(&self, actual: u64) -> Option<Adjustment> {
        match actual.checked_sub(self.cost) {
            None => Some(Adjustment::Refund {
                units: self.cost - actual,
            }),
            Some(0) => None,
            Some(units) => Some(Adjustment::Charge { units }),
        }
    }

    /// The change as the budgets of a store need it, at the store's time `now`.
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

/// How long a charge can count: until the longest of its limits has restored it.
///
/// A bucket is full again after capacity / rate periods. A counter counts until the end of the next window, so two
/// periods are added to every limit. The result is an upper bound, at most [`MAX_LIFE`].
pub(crate) fn life(policy: &Policy) -> Duration {
    let limits = policy.groups().iter().flat_map(|group| &group.limits);
    let lives = limits.map(|effective| {
        // Windows and logs restore their capacity in one period, so this is 1 for them.
        let periods = effective.limit.capacity() / effective.limit.per_period().max(1);
        let periods = u32::try_from(periods).unwrap_or(u32::MAX).saturating_add(2);
        effective.limit.period().saturating_mul(periods)
    });
    lives.max().unwrap_or_default().min(MAX_LIFE)
}
