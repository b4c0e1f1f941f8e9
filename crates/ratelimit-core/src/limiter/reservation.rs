//! What was charged, and what can still become of it.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use crate::limiter::{Check, Limiter, Verdict};
use crate::{
    budget::Adjustment,
    policy::{FailureMode, Policy},
    store::{ChargedBy, Hit, OwnedHit, Receipt, Settlement, StoreError, StoreFuture},
};

/// A check under way; awaiting it gives the [`Verdict`], and the [`Reservation`] if there was one.
#[must_use = "a check is made when it is awaited"]
pub struct Reserve {
    check: Check,
    hit: OwnedHit,
    limiter: Limiter,
}

impl Reserve {
    pub(super) fn new(limiter: &Limiter, hit: Hit<'_>) -> Reserve {
        Reserve {
            check: Check::new(limiter, &hit),
            hit: OwnedHit::new(hit),
            limiter: limiter.clone(),
        }
    }
}

impl Future for Reserve {
    type Output = (Verdict, Option<Reservation>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let verdict = ready!(Pin::new(&mut self.check).poll(cx));
        let charge = Reservation::from_verdict(&self.limiter, self.hit.as_hit(), &verdict);
        Poll::Ready((verdict, charge))
    }
}

impl Drop for Reserve {
    /// A store in memory has decided before the future is polled: a slot that nobody learns of is given back.
    fn drop(&mut self) {
        if self.hit.as_hit().policy.has_concurrency_limit()
            && let Some(verdict) = self.check.take_ready()
        {
            drop(Reservation::from_verdict(
                &self.limiter,
                self.hit.as_hit(),
                &verdict,
            ));
        }
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.check.fmt(f)
    }
}

/// What a hit was charged. It can be given back or settled once; dropping it leaves it charged.
///
/// Under a policy with a concurrency limit it also holds the slot: for as long as it lives, renewing
/// the lease, and no longer.
///
/// ```
/// use ratelimit_core::{Hit, Key, Limiter, Policy};
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
pub struct Reservation {
    receipt: Receipt,
    limiter: Limiter,
    is_kept: bool,
    #[cfg(feature = "tokio")]
    renewal: Option<tokio::task::AbortHandle>,
}

impl Reservation {
    fn from_verdict(limiter: &Limiter, hit: Hit<'_>, verdict: &Verdict) -> Option<Reservation> {
        let (decision, origin) = match verdict {
            Verdict::Checked(decision) => (decision, ChargedBy::Store),
            Verdict::Unchecked { mode, decision, .. } => {
                let origin = match *mode {
                    FailureMode::LocalShare { instances } => ChargedBy::LocalShare { instances },
                    _ => ChargedBy::Local,
                };
                (decision.as_ref()?, origin)
            }
        };
        let share: Policy;
        let hit = match origin {
            ChargedBy::LocalShare { instances } => {
                share = hit.policy.share_of(instances);
                hit.with_policy(&share)
            }
            _ => hit,
        };
        let receipt = Receipt::new(hit, decision)?.charged_in(origin);
        let charge = Reservation {
            receipt,
            limiter: limiter.clone(),
            is_kept: false,
            #[cfg(feature = "tokio")]
            renewal: None,
        };
        #[cfg(feature = "tokio")]
        let charge = charge.start_renewal();
        Some(charge)
    }

    /// What is known of it.
    pub const fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Lets go of it without releasing its slot, which is held until its lease ends.
    ///
    /// With the receipt it can still be changed, here or elsewhere: [`Limiter::settle`],
    /// [`Limiter::release`] and [`Limiter::renew`].
    #[must_use = "without the receipt it stays charged"]
    pub fn into_receipt(mut self) -> Receipt {
        self.is_kept = true;
        self.receipt.clone()
    }

    /// Gives back all that was charged and time has not given back since, and the slot.
    ///
    /// # Errors
    ///
    /// When the store does not answer; it then stays charged.
    pub async fn refund(self) -> Result<Settlement, StoreError> {
        self.settle(0).await
    }

    /// Makes it as if `actual` had been charged: gives back what was too much, or charges what is
    /// missing, as far as there is room. The slot is given back.
    ///
    /// # Errors
    ///
    /// When the store does not answer; it then stays as it was charged.
    pub async fn settle(self, actual: u64) -> Result<Settlement, StoreError> {
        match self.receipt.adjustment_to(actual) {
            Some(change) => self.adjust(change).await,
            None => Ok(Settlement::Unchanged),
        }
    }

    fn adjust(&self, change: Adjustment) -> StoreFuture<Settlement> {
        self.limiter.adjust(&self.receipt, change)
    }

    /// Renews the lease of its slot until it is dropped.
    #[cfg(feature = "tokio")]
    fn start_renewal(mut self) -> Reservation {
        let Some(lease) = self.receipt.lease() else {
            return self;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return self;
        };
        let (limiter, receipt) = (self.limiter.clone(), self.receipt.clone());
        let renewing = async move {
            loop {
                tokio::time::sleep(lease / 3).await;
                match limiter.adjust(&receipt, Adjustment::Renew).await {
                    Ok(Settlement::LeaseLost) => {
                        tracing::debug!("a slot's lease ended before it was renewed");
                        return;
                    }
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, "a slot could not be renewed"),
                }
            }
        };
        self.renewal = Some(runtime.spawn(renewing).abort_handle());
        self
    }
}

impl Drop for Reservation {
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
        f.debug_struct("Charge")
            .field("receipt", &self.receipt)
            .finish_non_exhaustive()
    }
}
