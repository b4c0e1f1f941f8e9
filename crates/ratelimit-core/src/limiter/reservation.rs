//! Reservations: charges that can be settled or refunded, and that hold a slot.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

#[cfg(feature = "tokio")]
use crate::budget::Adjustment;
use crate::limiter::{Check, Limiter, Verdict, verdict::Answer};
use crate::{
    decision::{Decision, RefundMark},
    policy::FailureMode,
    store::{ChargedBy, Hit, OwnedHit, Receipt, Settlement, StoreError},
};

/// The future of [`Limiter::reserve`]: the [`Verdict`], and the [`Reservation`] if something was charged.
///
/// Dropping it before it is ready:
///
/// - with a memory store, which decides before the first poll, releases the slot; other units stay charged;
/// - with another store, may leave the hit counted or not counted. The store releases the slot.
#[must_use = "a check is made when it is awaited"]
pub struct Reserve {
    check: Check,
    /// The hit, kept to make the receipt when the decision is there.
    hit: OwnedHit,
    limiter: Limiter,
}

impl Reserve {
    /// Starts the check.
    pub(super) fn new(limiter: &Limiter, hit: Hit<'_>) -> Reserve {
        Reserve {
            check: Check::new(limiter, hit),
            hit: OwnedHit::new(hit),
            limiter: limiter.clone(),
        }
    }
}

impl Future for Reserve {
    type Output = (Verdict, Option<Reservation>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.check.poll_answer(cx));
        let charge = Reservation::from_answer(&self.limiter, self.hit.as_hit(), &answer);
        Poll::Ready((answer.verdict, charge))
    }
}

impl Drop for Reserve {
    /// Releases the slot of a decision that was never read. A memory store decides before the future is polled, so
    /// otherwise nothing would release that slot before its lease ends.
    fn drop(&mut self) {
        if self.hit.as_hit().policy.has_concurrency_limit()
            && let Some(answer) = self.check.take_answer()
        {
            drop(Reservation::from_answer(
                &self.limiter,
                self.hit.as_hit(),
                &answer,
            ));
        }
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.check.fmt(f)
    }
}

/// A charge that can still be settled or refunded, once.
///
/// - [`settle`](Reservation::settle) replaces the charged cost by the actual one, [`refund`](Reservation::refund) gives
///   all of it back. Both consume the reservation.
/// - Dropping it leaves the units charged.
/// - Under a policy with a concurrency limit it holds the slot. On a tokio runtime (feature `tokio`) a task renews the
///   lease every third of it. Dropping the reservation stops the task and releases the slot in the background.
/// - [`into_receipt`](Reservation::into_receipt) ends it without releasing the slot, to continue by receipt, also in
///   another process.
/// - Every change goes to the store that made the charge: after an outage, a local charge is settled in the local store.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy, store::Hit};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let limiter = Limiter::in_memory();
/// let tokens = Policy::parse("llm", "1000/min")?;
/// let alice = Key::new("alice")?;
///
/// let (verdict, charge) = limiter.reserve(Hit::new(&tokens, &alice).cost(400)).await;
/// assert!(verdict.is_allowed());
/// charge.expect("it passed").settle(150).await?;
///
/// let left = limiter.peek(&tokens, &alice).await;
/// assert_eq!(left.decision().unwrap().remaining, 850);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it releases its slot"]
#[doc(alias = "permit")]
#[doc(alias = "charge")]
pub struct Reservation {
    receipt: Receipt,
    limiter: Limiter,
    /// Whether the slot outlives this value, because the receipt was taken out.
    is_kept: bool,
    /// Stops the renewal of the lease.
    #[cfg(feature = "tokio")]
    renewal: Option<tokio::task::AbortHandle>,
}

impl Reservation {
    /// The reservation of an allowed hit; `None` if nothing was charged, or the modes `Open` and `Closed` decided.
    fn from_answer(limiter: &Limiter, hit: Hit<'_>, answer: &Answer) -> Option<Reservation> {
        let receipt = receipt_of(hit, &answer.verdict, &answer.marks)?;
        Some(Reservation {
            #[cfg(feature = "tokio")]
            renewal: spawn_renewal(limiter, &receipt),
            receipt,
            limiter: limiter.clone(),
            is_kept: false,
        })
    }

    /// The receipt of the charge, for its cost, keys and slot.
    ///
    /// Do not settle the charge by this receipt and by the reservation as well: the reservation does not record that it
    /// was settled, so both are applied. To settle by receipt, take it with [`into_receipt`](Reservation::into_receipt).
    pub const fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Ends the reservation without releasing its slot, and returns the receipt.
    ///
    /// Renewal stops: the slot is held until its lease ends. With the receipt the charge can still be changed, here or in
    /// another process: [`Limiter::settle`], [`Limiter::release`] and [`Limiter::renew`].
    #[must_use = "without the receipt it stays charged"]
    pub fn into_receipt(mut self) -> Receipt {
        self.is_kept = true;
        self.receipt.clone()
    }

    /// Refunds all units that time has not restored since, and releases the slot.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] when the store does not answer, or refuses. The units then stay charged; the slot is released in
    /// the background, or when its lease ends.
    pub async fn refund(self) -> Result<Settlement, StoreError> {
        self.settle(0).await
    }

    /// Replaces the charged cost by `actual`, and releases the slot.
    ///
    /// - Less than was charged: the difference is refunded, without the units that time has restored since.
    /// - More than was charged: the difference is charged as far as the budget allows; the rest is dropped.
    ///
    /// Dropping the future after its first poll may leave the charge changed or unchanged; the slot is released.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] when the store does not answer, or refuses. The charge then stays as it was; the slot is released
    /// in the background, or when its lease ends.
    pub async fn settle(self, actual: u64) -> Result<Settlement, StoreError> {
        match self.receipt.adjustment_to(actual) {
            Some(change) => self.limiter.adjust(&self.receipt, change).await,
            None => Ok(Settlement::Unchanged),
        }
    }
}

/// Spawns a task that renews the lease of the slot until the reservation is dropped.
///
/// Without a slot or without a runtime it does nothing; the slot is then held for one lease.
#[cfg(feature = "tokio")]
fn spawn_renewal(limiter: &Limiter, receipt: &Receipt) -> Option<tokio::task::AbortHandle> {
    let lease = receipt.lease()?;
    // Outside of a runtime nothing can renew: the holder has one lease.
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    let (limiter, receipt) = (limiter.clone(), receipt.clone());
    let renewing = async move {
        loop {
            // A third of the lease: two renewals can fail before the slot is lost.
            tokio::time::sleep(lease / 3).await;
            match limiter.adjust(&receipt, Adjustment::Renew).await {
                Ok(Settlement::LeaseLost) => {
                    tracing::debug!("a slot's lease ended before it was renewed");
                    return;
                }
                Ok(_) => {}
                // The next attempt follows; the lease covers two failures.
                Err(error) => tracing::debug!(%error, "a slot could not be renewed"),
            }
        }
    };
    Some(runtime.spawn(renewing).abort_handle())
}

/// The receipt of an allowed hit, which names the store that charged it; `None` if nothing was charged.
#[inline]
pub(super) fn receipt_of(hit: Hit<'_>, verdict: &Verdict, marks: &[RefundMark]) -> Option<Receipt> {
    match verdict {
        Verdict::Checked(decision) => Receipt::of_charge(hit, decision, marks),
        Verdict::Unchecked { mode, decision, .. } => {
            local_receipt(hit, *mode, decision.as_ref()?, marks)
        }
    }
}

/// The receipt of a hit that the local store allowed. Out of line: the store decides nearly all hits.
#[inline(never)]
fn local_receipt(
    hit: Hit<'_>,
    mode: FailureMode,
    decision: &Decision,
    marks: &[RefundMark],
) -> Option<Receipt> {
    let receipt = match mode {
        // The local store charged the share of the limits, so the receipt must carry the share too.
        FailureMode::LocalShare { instances } => {
            let share = hit.policy.share_of(instances);
            Receipt::of_charge(hit.with_policy(&share), decision, marks)?
                .charged_in(ChargedBy::LocalShare { instances })
        }
        _ => Receipt::of_charge(hit, decision, marks)?.charged_in(ChargedBy::Local),
    };
    Some(receipt)
}

impl Drop for Reservation {
    /// Stops the renewal, and releases the slot in the background unless the receipt was taken out.
    fn drop(&mut self) {
        #[cfg(feature = "tokio")]
        if let Some(renewal) = &self.renewal {
            renewal.abort();
        }
        if self.receipt.lease().is_some() && !self.is_kept {
            self.limiter.release_in_background(&self.receipt);
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("receipt", &self.receipt)
            .finish_non_exhaustive()
    }
}
