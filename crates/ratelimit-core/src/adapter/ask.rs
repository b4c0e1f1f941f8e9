//! What the limiter is asked about a request, and what it answered.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use crate::{
    limiter::{Check, Reservation, Reserve, Verdict},
    policy::Policy,
};

/// A question to the limiter under way; awaiting it gives what the limiter said.
#[must_use = "the limiter is asked when this is awaited"]
pub struct Asking {
    progress: Progress,
    tier: Option<Policy>,
}

enum Progress {
    Checking(Check),
    Reserve(Box<Reserve>),
}

impl Asking {
    pub(super) const fn checking(check: Check, tier: Option<Policy>) -> Asking {
        let progress = Progress::Checking(check);
        Asking { progress, tier }
    }

    /// Keeps the charge, to which something happens after the response.
    pub(super) fn charging(charging: Reserve, tier: Option<Policy>) -> Asking {
        let progress = Progress::Reserve(Box::new(charging));
        Asking { progress, tier }
    }
}

impl Future for Asking {
    type Output = Asked;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Asked> {
        let (verdict, charge) = match &mut self.progress {
            Progress::Checking(check) => (ready!(Pin::new(check).poll(cx)), None),
            Progress::Reserve(charging) => ready!(Pin::new(&mut **charging).poll(cx)),
        };
        Poll::Ready(Asked {
            verdict,
            charge,
            tier: self.tier.take(),
        })
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.progress {
            Progress::Checking(_) => "Asking::Checking",
            Progress::Reserve(_) => "Asking::Charging",
        })
    }
}

/// What the limiter answered, and what it charged.
#[derive(Debug)]
#[must_use = "an answer says whether to go on"]
pub struct Asked {
    pub(super) verdict: Verdict,
    pub(super) charge: Option<Reservation>,
    pub(super) tier: Option<Policy>,
}
