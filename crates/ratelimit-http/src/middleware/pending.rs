//! What the limiter is asked about a request, and what it answered.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use ratelimit_core::{Check, Policy, Reservation, Reserve, Verdict};

/// A question to the limiter under way; awaiting it gives what the limiter said.
#[must_use = "the limiter is asked when this is awaited"]
pub struct PendingCheck {
    progress: PendingState,
    tier: Option<Policy>,
}

enum PendingState {
    Checking(Check),
    Reserve(Box<Reserve>),
}

impl PendingCheck {
    pub(crate) const fn checking(check: Check, tier: Option<Policy>) -> PendingCheck {
        let progress = PendingState::Checking(check);
        PendingCheck { progress, tier }
    }

    /// Keeps the charge, to which something happens after the response.
    pub(crate) fn charging(charging: Reserve, tier: Option<Policy>) -> PendingCheck {
        let progress = PendingState::Reserve(Box::new(charging));
        PendingCheck { progress, tier }
    }
}

impl Future for PendingCheck {
    type Output = CompletedCheck;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CompletedCheck> {
        let (verdict, charge) = match &mut self.progress {
            PendingState::Checking(check) => (ready!(Pin::new(check).poll(cx)), None),
            PendingState::Reserve(charging) => ready!(Pin::new(&mut **charging).poll(cx)),
        };
        Poll::Ready(CompletedCheck {
            verdict,
            charge,
            tier: self.tier.take(),
        })
    }
}

impl fmt::Debug for PendingCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.progress {
            PendingState::Checking(_) => "Asking::Checking",
            PendingState::Reserve(_) => "Asking::Charging",
        })
    }
}

/// What the limiter answered, and what it charged.
#[derive(Debug)]
#[must_use = "an answer says whether to go on"]
pub struct CompletedCheck {
    pub(crate) verdict: Verdict,
    pub(crate) charge: Option<Reservation>,
    pub(crate) tier: Option<Policy>,
}
