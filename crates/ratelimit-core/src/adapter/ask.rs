//! What the limiter is asked about a request, and what it answered.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::{framework::Framework, settings::Settings};
use crate::{
    limiter::{Charge, Charging, Check, Limiter, Verdict},
    policy::Policy,
    store::Hit,
};

impl<F: Framework> Settings<F> {
    /// Asks `limiter`, and keeps the charge where something happens to it after the response.
    #[inline]
    pub(super) fn ask(&self, limiter: &Limiter, hit: Hit<'_>) -> Progress {
        if self.terms.needs_charge {
            Progress::Charging(Box::new(limiter.charge(hit)))
        } else {
            Progress::Checking(limiter.hit(hit))
        }
    }
}

/// A question to the limiter under way; awaiting it gives what the limiter said.
#[must_use = "the limiter is asked when this is awaited"]
pub struct Asking {
    pub(super) progress: Progress,
    pub(super) tier: Option<Policy>,
}

pub(super) enum Progress {
    Checking(Check),
    Charging(Box<Charging>),
}

impl Progress {
    /// Takes the answer, if it is there already and nothing was charged that has to be kept.
    #[inline]
    pub(super) fn take_ready(&mut self) -> Option<Verdict> {
        match self {
            Progress::Checking(check) => check.take_ready(),
            Progress::Charging(_) => None,
        }
    }
}

impl Future for Asking {
    type Output = Asked;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Asked> {
        let (verdict, charge) = match &mut self.progress {
            Progress::Checking(check) => (ready!(Pin::new(check).poll(cx)), None),
            Progress::Charging(charging) => ready!(Pin::new(&mut **charging).poll(cx)),
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
            Progress::Charging(_) => "Asking::Charging",
        })
    }
}

/// What the limiter answered, and what it charged.
#[derive(Debug)]
#[must_use = "an answer says whether to go on"]
pub struct Asked {
    pub(super) verdict: Verdict,
    pub(super) charge: Option<Charge>,
    pub(super) tier: Option<Policy>,
}
