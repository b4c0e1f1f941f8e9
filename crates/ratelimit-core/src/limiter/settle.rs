//! Settlement, release and renewal of a charge by its receipt.
//!
//! A settlement has two steps: mark the receipt as settled, then change the charge. In a memory store the mark is an entry
//! in its list of settled receipts. In any other store it is a hit on a budget of one unit, so the store itself guarantees
//! that one settlement of all processes wins.

use std::{error::Error, fmt, time::Duration};

use crate::limiter::Limiter;
use crate::{
    algorithm::TokenBucket,
    budget::Adjustment,
    key::Key,
    key_set::KeySet,
    policy::Policy,
    store::{
        ChargedBy, Hit, MemoryStore, Receipt, Redemption, Settlement, Store, StoreError,
        StoreFuture,
    },
    time::Timestamp,
};

/// The policy name of the marks. No policy can have it: `~` is not allowed in names.
const REDEEMED: &str = "receipt~";

/// Minimum life of a mark; a token bucket needs a period of 1 ms or more.
const MIN_MARK_LIFE: Duration = Duration::from_secs(1);

/// Settlements of a limiter that are retried in the background at most.
#[cfg(feature = "tokio")]
pub(super) const MAX_LATE_SETTLEMENTS: usize = 1_024;
/// The time for a settlement in the background.
#[cfg(feature = "tokio")]
const LATE_SETTLEMENT_TIME: Duration = Duration::from_secs(5);
/// The pause between two attempts.
#[cfg(feature = "tokio")]
const LATE_SETTLEMENT_PAUSE: Duration = Duration::from_millis(50);

impl Limiter {
    /// Replaces the charged cost by `actual`, and releases the slot, once for each receipt.
    ///
    /// - All processes that share the store know that a receipt was settled. The store records it first: when the store
    ///   fails between the two steps, the charge stays as it was, and the receipt cannot be used again.
    /// - `actual` below the charge refunds the difference; above it, the difference is charged as far as the budget
    ///   allows.
    /// - On a tokio runtime (feature `tokio`) both steps run in a task. Dropping this future after its first poll does not
    ///   stop them.
    /// - A slot can be renewed for longer than its receipt [lives](Receipt::expires_at). After that only the slot is
    ///   released; the units stay as they were charged.
    ///
    /// [`Receipt`] has an example.
    ///
    /// # Errors
    ///
    /// - [`SettleError::AlreadySettled`]: the receipt was settled before, in this process or another.
    /// - [`SettleError::Expired`]: the receipt has expired and holds no slot.
    /// - [`SettleError::Forgotten`]: the memory store has settled so many receipts since that it cannot tell whether this
    ///   was one of them. A slot is released all the same.
    /// - [`SettleError::Store`]: the store did not answer. The receipt may be marked as settled. A change that was not
    ///   sent after the mark is then retried in the background for up to five seconds, on a tokio runtime.
    pub async fn settle(&self, receipt: &Receipt, actual: u64) -> Result<Settlement, SettleError> {
        // Spawned, so that dropping this future between the mark and the change does not stop the change: the receipt
        // could not be used again. A memory store needs no task, because both steps are ready at the first poll.
        #[cfg(feature = "tokio")]
        if self.shared.memory.is_none()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (limiter, receipt) = (self.clone(), receipt.clone());
            let settled = runtime.spawn(async move { limiter.settle_once(&receipt, actual).await });
            return settled.await.unwrap_or_else(|error| {
                if error.is_panic() {
                    std::panic::resume_unwind(error.into_panic());
                }
                Err(StoreError::Unavailable { source: None }.into())
            });
        }
        self.settle_once(receipt, actual).await
    }

    /// Marks the receipt as settled, then changes the charge and releases the slot.
    async fn settle_once(&self, receipt: &Receipt, actual: u64) -> Result<Settlement, SettleError> {
        let (redemption, now) = self.redeem(receipt).await?;
        match redemption {
            Redemption::First => {}
            Redemption::Repeated => return Err(SettleError::AlreadySettled),
            Redemption::Forgotten => {
                return self.settle_late(receipt, SettleError::Forgotten).await;
            }
        }
        // The store's clock decides on the expiry, as it did on the charge.
        if now >= receipt.expires_at() {
            return self.settle_late(receipt, SettleError::Expired).await;
        }
        let settled = match receipt.adjustment_to(actual) {
            Some(change) => match self.adjust(receipt, change).await {
                Ok(settled) => settled,
                // The mark stays, so the caller cannot try again.
                Err(error) => {
                    self.settle_in_background(receipt, change, &error);
                    return Err(error.into());
                }
            },
            None => Settlement::Unchanged,
        };
        if receipt.lease().is_none() {
            return Ok(settled);
        }
        // A full refund has released the slot already; releasing it again changes nothing.
        match self.release_or_retry(receipt).await? {
            Settlement::Unchanged => Ok(settled),
            released => Ok(released),
        }
    }

    /// Completes the settlement of a marked receipt whose change failed with `error`.
    ///
    /// - A change that certainly was not made is retried in a task, for up to five seconds.
    /// - Any other change may have been made and is not made again. Its slot is released.
    fn settle_in_background(&self, receipt: &Receipt, change: Adjustment, error: &StoreError) {
        #[cfg(feature = "tokio")]
        if error.may_be_repeated()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
            && let Ok(permit) =
                std::sync::Arc::clone(&self.shared.late_settlements).try_acquire_owned()
        {
            let (limiter, receipt) = (self.clone(), receipt.clone());
            runtime.spawn(async move {
                limiter.retry_settlement(&receipt, change).await;
                drop(permit);
            });
            return;
        }
        #[cfg(not(feature = "tokio"))]
        let _ = (change, error);
        if receipt.lease().is_some() {
            self.release_in_background(receipt);
        }
    }

    /// Makes a change that was not made, for up to five seconds, and then releases the slot.
    #[cfg(feature = "tokio")]
    async fn retry_settlement(&self, receipt: &Receipt, change: Adjustment) {
        let deadline = tokio::time::Instant::now() + LATE_SETTLEMENT_TIME;
        while tokio::time::Instant::now() < deadline {
            tokio::time::sleep(LATE_SETTLEMENT_PAUSE).await;
            match self.adjust(receipt, change).await {
                Err(error) if error.may_be_repeated() => {}
                Ok(_) | Err(_) => break,
            }
        }
        if receipt.lease().is_some() {
            self.release_in_background(receipt);
        }
    }

    /// Releases the slot of a marked receipt. If that fails, it is released in the background.
    async fn release_or_retry(&self, receipt: &Receipt) -> Result<Settlement, StoreError> {
        let released = self.release(receipt).await;
        if released.is_err() {
            self.release_in_background(receipt);
        }
        released
    }

    /// Marks the receipt as settled, and returns whether it was not before, with the time of the store.
    async fn redeem(&self, receipt: &Receipt) -> Result<(Redemption, Timestamp), StoreError> {
        if let Some(memory) = self.memory_store_of(receipt) {
            return Ok(memory.redeem(receipt));
        }
        let (redeemed, key) = (redeemed(receipt), name(receipt));
        let first = self.shared.store.hit(Hit::new(&redeemed, &key)).await?;
        let redemption = if first.is_allowed() {
            Redemption::First
        } else {
            Redemption::Repeated
        };
        Ok((redemption, first.decision.now))
    }

    /// Releases the slot of a receipt whose units stay as they are, if it is still held.
    ///
    /// # Errors
    ///
    /// `reason` without a slot, or when the slot is not held any more; [`SettleError::Store`].
    async fn settle_late(
        &self,
        receipt: &Receipt,
        reason: SettleError,
    ) -> Result<Settlement, SettleError> {
        if receipt.lease().is_none() {
            return Err(reason);
        }
        match self.release_or_retry(receipt).await? {
            Settlement::Applied => Ok(Settlement::Applied),
            Settlement::Unchanged | Settlement::LeaseLost => Err(reason),
        }
    }

    /// Releases the slot of a charge. The units stay charged, and the receipt can still be settled.
    ///
    /// It may be repeated: releasing a free slot returns [`Settlement::Unchanged`].
    ///
    /// # Errors
    ///
    /// A [`StoreError`] when the store does not answer, or refuses. The slot is then held until its lease ends.
    pub async fn release(&self, receipt: &Receipt) -> Result<Settlement, StoreError> {
        self.adjust(receipt, Adjustment::Release).await
    }

    /// Renews the lease of a slot: it is held for a full lease from now.
    ///
    /// Returns [`Settlement::LeaseLost`] when the lease has ended before; the slot may belong to another hit then. A
    /// [`Reservation`](crate::Reservation) renews its slot by itself.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy, store::{Hit, Settlement}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let limiter = Limiter::in_memory();
    /// let policy = Policy::parse("export", "concurrency 1 lease 30s")?;
    /// let alice = Key::new("alice")?;
    /// let (_, reservation) = limiter.reserve(Hit::new(&policy, &alice)).await;
    /// let receipt = reservation.expect("the slot was free").into_receipt();
    ///
    /// assert_eq!(limiter.renew(&receipt).await?, Settlement::Applied);
    /// assert_eq!(limiter.release(&receipt).await?, Settlement::Applied);
    /// assert_eq!(limiter.renew(&receipt).await?, Settlement::LeaseLost);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A [`StoreError`] when the store does not answer, or refuses. The lease is then unchanged or renewed.
    pub async fn renew(&self, receipt: &Receipt) -> Result<Settlement, StoreError> {
        self.adjust(receipt, Adjustment::Renew).await
    }

    /// Gives up to `units` back to the budgets of `keys`, whichever hits spent them. It needs no receipt.
    ///
    /// - Never more than was spent is given back: a bucket becomes full at most, a window or log empty.
    /// - A log gives its oldest units back. Concurrency limits and penalty boxes stay as they are.
    /// - The limits are those of the tier of the primary key. Units that were prefetched stay with their process.
    /// - The call is not idempotent. After [`StoreError::TimedOut`] the units may have been given back or not.
    /// - Where the store does not answer, nothing is given back, also not by the local fallback.
    ///
    /// To give back one known charge, and no more than time has left of it, use [`settle`](Limiter::settle).
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let limiter = Limiter::in_memory();
    /// let (policy, alice) = (Policy::parse("api", "fixed_window 10/d")?, Key::new("alice")?);
    /// assert!(limiter.check_cost(&policy, &alice, 7).await.is_allowed());
    ///
    /// limiter.credit(&policy, &alice.clone().into(), 5).await?;
    /// assert_eq!(limiter.peek(&policy, &alice).await.decision().unwrap().remaining, 8);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A [`StoreError`] when the store does not answer, or refuses.
    #[doc(alias = "refund")]
    pub async fn credit(
        &self,
        policy: &Policy,
        keys: &KeySet,
        units: u64,
    ) -> Result<Settlement, StoreError> {
        let change = Adjustment::Credit { units };
        self.adjust_keys(policy, keys, change).await
    }

    /// Changes the budgets of keys, whichever hits were charged to them.
    fn adjust_keys(
        &self,
        policy: &Policy,
        keys: &KeySet,
        change: Adjustment,
    ) -> StoreFuture<Settlement> {
        let hit = Hit::for_keys(policy.for_key(keys.primary()), keys);
        let marks = std::iter::empty();
        let receipt = Receipt::from_marks(hit, Timestamp::default(), marks);
        self.adjust(&receipt.expect("a hit of cost 1 has a receipt"), change)
    }

    /// Changes a charge in the store that made it, and drops cached denials of its keys.
    ///
    /// Denials are dropped after the answer, also after an error: the change may have happened.
    pub(super) fn adjust(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        let settling = self.store_of(receipt).settle(receipt, change);
        match settling.try_ready() {
            Ok(settled) => {
                self.after_change(receipt, change, settled.as_ref().ok());
                StoreFuture::ready(settled)
            }
            Err(settling) => {
                let (limiter, receipt) = (self.clone(), receipt.clone());
                StoreFuture::pending(async move {
                    let settled = settling.await;
                    limiter.after_change(&receipt, change, settled.as_ref().ok());
                    settled
                })
            }
        }
    }

    /// Drops cached denials. The local fallback learns of slots that are released or renewed, and of later local charges.
    /// It learns of refunds by the next reply of the store.
    fn after_change(&self, receipt: &Receipt, change: Adjustment, settled: Option<&Settlement>) {
        self.invalidate_denials(receipt);
        let fallback = &self.shared.fallback;
        if receipt.is_local() {
            if matches!(change, Adjustment::Charge { .. }) {
                fallback.charged_more(receipt.policy(), receipt.keys());
                #[cfg(feature = "tokio")]
                fallback.start_task(&self.shared.store);
            }
        } else if settled.is_some()
            && receipt.lease().is_some()
            && self.falls_back_locally(receipt.policy())
        {
            let slot_change = match change {
                Adjustment::Refund { units } if units >= receipt.cost() => Adjustment::Release,
                Adjustment::Refund { .. } | Adjustment::Charge { .. } => return,
                other => other,
            };
            fallback.local.adjust(receipt, slot_change);
        }
    }

    /// Releases the slot of a dropped reservation without waiting for the store.
    ///
    /// Without a runtime the slot is held until its lease ends.
    pub(super) fn release_in_background(&self, receipt: &Receipt) {
        self.store_of(receipt).release_in_background(receipt);
        self.after_change(receipt, Adjustment::Release, Some(&Settlement::Applied));
    }

    /// Drops cached denials of the receipt's keys: the change may have made room.
    fn invalidate_denials(&self, receipt: &Receipt) {
        let charged = Hit::for_keys(receipt.policy(), receipt.keys());
        self.shared.deny_cache.invalidate(charged);
    }

    /// The store that made the charge.
    fn store_of(&self, receipt: &Receipt) -> &dyn Store {
        match receipt.charged_by() {
            ChargedBy::Store => &*self.shared.store,
            ChargedBy::Local | ChargedBy::LocalShare { .. } => &self.shared.fallback.local,
        }
    }

    /// The memory store that made the charge, which also records settled receipts; `None` if another store made it.
    fn memory_store_of(&self, receipt: &Receipt) -> Option<&MemoryStore> {
        match receipt.charged_by() {
            ChargedBy::Store => self.shared.memory.as_ref(),
            ChargedBy::Local | ChargedBy::LocalShare { .. } => Some(&self.shared.fallback.local),
        }
    }
}

/// The key that identifies a receipt in the store: a digest of its bytes.
fn name(receipt: &Receipt) -> Key {
    Key::hashed("receipt", receipt.to_bytes()).expect("the tag is one, and there are bytes")
}

/// The policy of the mark: one unit, which is restored when the charge of the receipt no longer counts.
///
/// Marks are separate for each policy, so that its settlements do not delay those of others in the queues of a store.
/// The budgets have the same name for all.
fn redeemed(receipt: &Receipt) -> Policy {
    let life = receipt.expires_at().since(receipt.charged_at());
    let once =
        TokenBucket::new(1, 1, life.max(MIN_MARK_LIFE)).expect("a receipt's life is a period");
    Policy::reserved(REDEEMED, once).reserved_for(receipt.policy())
}

/// Why [`Limiter::settle`] did not settle a receipt.
///
/// | error | the charge | try again |
/// |---|---|---|
/// | `AlreadySettled` | was changed by the first call | no |
/// | `Expired` | counts no more | no |
/// | `Forgotten` | is unchanged, unless an earlier call has changed it | no |
/// | `Store` | is unchanged, or was changed in part | yes, unless a double refund is worse than a lost one |
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SettleError {
    /// The receipt was settled before, in this process or another.
    AlreadySettled,
    /// Time has restored all units of the charge, and no slot is held.
    Expired,
    /// The memory store does not know any more whether the receipt was settled: it has settled more receipts with a
    /// newer charge than it [remembers](crate::MemoryStore::capacity). The units stay as they are.
    ///
    /// A Redis store has no such bound, unless its `maxmemory-policy` evicts keys.
    Forgotten,
    /// The store did not answer. The charge is unchanged, or was changed in part.
    Store(StoreError),
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettleError::AlreadySettled => "the receipt was redeemed before",
            SettleError::Expired => "the receipt is too old",
            SettleError::Forgotten => {
                "the memory store no longer knows whether the receipt was settled; raise its capacity"
            }
            SettleError::Store(_) => "the rate limit store did not answer",
        })
    }
}

impl Error for SettleError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SettleError::Store(why) => Some(why),
            SettleError::AlreadySettled | SettleError::Expired | SettleError::Forgotten => None,
        }
    }
}

impl From<StoreError> for SettleError {
    fn from(why: StoreError) -> SettleError {
        SettleError::Store(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{store::MemoryStore, time::Clock};

    async fn charged(clock: &Clock, limits: &str) -> (Limiter, Policy, Key, Receipt) {
        let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
        let policy = Policy::parse("jobs", limits).unwrap();
        let key = Key::new("alice").unwrap();
        let (_, charge) = limiter.reserve(Hit::new(&policy, &key)).await;
        let receipt = charge.unwrap().into_receipt();
        (limiter, policy, key, receipt)
    }

    fn start() -> Clock {
        Clock::manual(Timestamp::from_secs(600))
    }

    #[tokio::test]
    async fn a_slot_that_was_renewed_past_the_receipts_life_is_released() {
        let clock = start();
        let (limiter, policy, key, receipt) =
            charged(&clock, "concurrency 1 lease 10s; 10/s").await;
        for _ in 0..8 {
            clock.advance(Duration::from_secs(5));
            assert_eq!(limiter.renew(&receipt).await.unwrap(), Settlement::Applied);
        }
        let busy = limiter.reserve(Hit::new(&policy, &key).cost(9)).await;
        assert!(!busy.0.is_allowed());

        let settled = limiter.settle(&receipt, 0).await;

        assert!(matches!(settled, Ok(Settlement::Applied)), "{settled:?}");
        let free = limiter.peek(&policy, &key).await;
        let remaining: Vec<u64> = free
            .decision()
            .unwrap()
            .limits()
            .map(|l| l.remaining)
            .collect();
        assert_eq!(
            remaining,
            [1, 10],
            "the slot is free, and no unit is refunded"
        );
        let again = limiter.settle(&receipt, 0).await;
        assert!(
            matches!(again, Err(SettleError::AlreadySettled)),
            "{again:?}"
        );
    }

    #[tokio::test]
    async fn a_receipt_whose_slot_is_lost_is_too_late() {
        for limits in ["concurrency 1 lease 10s", "1/s"] {
            let clock = start();
            let (limiter, _, _, receipt) = charged(&clock, limits).await;
            clock.advance(Duration::from_secs(60));

            let late = limiter.settle(&receipt, 0).await;

            assert!(matches!(late, Err(SettleError::Expired)), "{late:?}");
        }
    }

    #[tokio::test]
    async fn settled_receipts_evict_no_exhausted_key() {
        let clock = start();
        let store = MemoryStore::new().capacity(800).clock(clock.clone());
        let limiter = Limiter::new(store.clone());
        let (jobs, login) = (
            Policy::parse("jobs", "100000/d").unwrap(),
            Policy::parse("login", "5/h").unwrap(),
        );
        let (client, victim) = (Key::new("client").unwrap(), Key::new("victim").unwrap());
        assert!(limiter.check_cost(&login, &victim, 5).await.is_allowed());

        for _ in 0..900 {
            clock.advance(Duration::from_micros(1));
            let (_, charge) = limiter.reserve(Hit::new(&jobs, &client)).await;
            let receipt = charge.unwrap().into_receipt();
            limiter.settle(&receipt, 0).await.unwrap();
        }

        assert!(!limiter.check(&login, &victim).await.is_allowed());
        let stats = store.stats();
        assert_eq!((stats.keys, stats.evicted_exhausted), (2, 0));
    }

    #[tokio::test]
    async fn a_receipt_is_settled_once_however_many_settlements_follow() {
        let clock = start();
        let store = MemoryStore::new().capacity(800).clock(clock.clone());
        let limiter = Limiter::new(store);
        let policy = Policy::parse("jobs", "fixed_window 100000/d").unwrap();
        let client = Key::new("client").unwrap();
        assert!(
            limiter
                .check_cost(&policy, &client, 5_000)
                .await
                .is_allowed()
        );
        let mut receipts = Vec::new();
        for _ in 0..3_000 {
            clock.advance(Duration::from_millis(1));
            let (_, charge) = limiter.reserve(Hit::new(&policy, &client)).await;
            receipts.push(charge.unwrap().into_receipt());
        }
        for receipt in &receipts {
            limiter.settle(receipt, 0).await.unwrap();
        }

        for receipt in &receipts {
            let again = limiter.settle(receipt, 0).await;
            assert!(
                matches!(
                    again,
                    Err(SettleError::AlreadySettled | SettleError::Forgotten)
                ),
                "{again:?}"
            );
        }
        let left = limiter.peek(&policy, &client).await;
        assert_eq!(left.decision().unwrap().remaining, 95_000);
    }

    #[tokio::test]
    async fn limiters_over_one_memory_store_settle_a_receipt_once() {
        let store = MemoryStore::new().clock(start());
        let (one, other) = (Limiter::new(store.clone()), Limiter::new(store));
        let policy = Policy::parse("jobs", "fixed_window 10/d").unwrap();
        let key = Key::new("alice").unwrap();
        let (_, charge) = one.reserve(Hit::new(&policy, &key).cost(4)).await;
        let receipt = charge.unwrap().into_receipt();

        assert!(one.settle(&receipt, 0).await.is_ok());
        let again = other.settle(&receipt, 0).await;

        assert!(
            matches!(again, Err(SettleError::AlreadySettled)),
            "{again:?}"
        );
    }

    /// Does not send the first changes of charges.
    #[cfg(feature = "tokio")]
    #[derive(Debug)]
    struct OverloadedStore {
        inner: MemoryStore,
        overloads: std::sync::atomic::AtomicU32,
    }

    #[cfg(feature = "tokio")]
    impl Store for OverloadedStore {
        fn hit(&self, hit: Hit<'_>) -> StoreFuture<crate::store::Charged> {
            self.inner.hit(hit)
        }

        fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
            use std::sync::atomic::Ordering::Relaxed;

            let take = |left: u32| left.checked_sub(1);
            if self.overloads.fetch_update(Relaxed, Relaxed, take).is_ok() {
                return StoreFuture::ready(Err(StoreError::Overloaded));
            }
            self.inner.settle(receipt, change)
        }

        fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
            self.inner.reset(policy, keys)
        }
    }

    #[cfg(feature = "tokio")]
    #[tokio::test(start_paused = true)]
    async fn a_change_that_was_not_sent_is_made_later() {
        let limiter = Limiter::new(OverloadedStore {
            inner: MemoryStore::new().clock(start()),
            overloads: 3.into(),
        });
        let policy = Policy::parse("jobs", "concurrency 1 lease 10min; 10/d").unwrap();
        let key = Key::new("alice").unwrap();
        let (_, charge) = limiter.reserve(Hit::new(&policy, &key).cost(5)).await;
        let receipt = charge.unwrap().into_receipt();

        let settled = limiter.settle(&receipt, 2).await;

        let is_overloaded = matches!(settled, Err(SettleError::Store(StoreError::Overloaded)));
        assert!(is_overloaded, "{settled:?}");
        let again = limiter.settle(&receipt, 2).await;
        assert!(
            matches!(again, Err(SettleError::AlreadySettled)),
            "{again:?}"
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
        let left = limiter.peek(&policy, &key).await;
        let decision = left.decision().unwrap();
        let remaining: Vec<u64> = decision.limits().map(|limit| limit.remaining).collect();
        assert_eq!(remaining, [1, 8]);
    }

    #[test]
    fn marks_are_queued_for_each_policy_and_share_the_name_of_their_budgets() {
        let policy = Policy::parse("jobs", "10/d").unwrap();
        let key = Key::new("alice").unwrap();
        let marks = std::iter::empty();
        let receipt = Receipt::from_marks(Hit::new(&policy, &key), Timestamp::default(), marks);

        let mark = redeemed(&receipt.unwrap());

        assert_eq!((mark.name(), &*mark.groups()[0].name), ("jobs~", REDEEMED));
    }
}
