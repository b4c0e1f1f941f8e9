//! A check whose answer is pending.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use ratelimit_core::{Check, Policy, Reservation, Reserve, Verdict};

/// A check whose answer is pending. Awaiting it gives the [`CompletedCheck`] for
/// [`Config::complete`](crate::middleware::Config::complete).
///
/// Dropping it before the store was asked spends nothing.
#[must_use = "the limiter is asked when this is awaited"]
pub struct PendingCheck {
    state: PendingState,
    tier: Option<Policy>,
}

/// The future of the limiter. `Reserve` is boxed because it is large and less common.
enum PendingState {
    Checking(Check),
    Reserving(Box<Reserve>),
}

impl PendingCheck {
    /// A check that charges the cost for good.
    pub(crate) const fn checking(check: Check, tier: Option<Policy>) -> PendingCheck {
        let state = PendingState::Checking(check);
        PendingCheck { state, tier }
    }

    /// A check that reserves the cost, because the response can change the charge.
    pub(crate) fn reserving(reserve: Reserve, tier: Option<Policy>) -> PendingCheck {
        let state = PendingState::Reserving(Box::new(reserve));
        PendingCheck { state, tier }
    }
}

impl Future for PendingCheck {
    type Output = CompletedCheck;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CompletedCheck> {
        let (verdict, reservation) = match &mut self.state {
            PendingState::Checking(check) => (ready!(Pin::new(check).poll(cx)), None),
            PendingState::Reserving(reserve) => ready!(Pin::new(&mut **reserve).poll(cx)),
        };
        Poll::Ready(CompletedCheck {
            verdict,
            reservation,
            tier: self.tier.take(),
        })
    }
}

impl fmt::Debug for PendingCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            PendingState::Checking(_) => "PendingCheck::Checking",
            PendingState::Reserving(_) => "PendingCheck::Reserving",
        })
    }
}

/// The limiter's answer, and the reservation if the cost was reserved.
#[derive(Debug)]
#[must_use = "it says whether the request is served"]
pub struct CompletedCheck {
    pub(crate) verdict: Verdict,
    pub(crate) reservation: Option<Reservation>,
    /// The policy of the request's tier, if it is not the base policy.
    pub(crate) tier: Option<Policy>,
}
