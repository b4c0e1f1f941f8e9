//! What the limiter is asked about a request, and what it answered.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::{framework::Framework, settings::Settings};
use crate::{
    keys::Keys,
    limiter::{Charge, Charging, Check, Limiter, Verdict},
    policy::Policy,
    store::Hit,
};

/// What the limiter is to be asked: whose budgets are spent, how much of them, in which tier.
#[derive(Debug)]
pub struct Ask {
    pub(super) keys: Keys,
    pub(super) cost: u64,
    /// The policy of the request's tier, where that is not the settings' own.
    pub(super) tier: Option<Policy>,
}

impl<F: Framework> Settings<F> {
    /// Asks `limiter`, and keeps the charge where something happens to it after the response.
    #[inline]
    pub fn ask(&self, limiter: &Limiter, ask: Ask) -> Asking {
        let policy = ask.tier.as_ref().unwrap_or(&self.policy);
        let hit = Hit::by(policy, &ask.keys).cost(ask.cost);
        let progress = if self.needs_charge {
            Progress::Charging(Box::new(limiter.charge(hit)))
        } else {
            Progress::Checking(limiter.hit(hit))
        };
        Asking {
            progress,
            tier: ask.tier,
        }
    }
}

/// A question to the limiter under way; awaiting it gives what was [`Asked`].
#[must_use = "the limiter is asked when this is awaited"]
pub struct Asking {
    progress: Progress,
    tier: Option<Policy>,
}

enum Progress {
    Checking(Check),
    Charging(Box<Charging>),
}

impl Asking {
    /// Takes the answer, if it is there already and nothing was charged that has to be kept.
    ///
    /// A question whose answer was taken is complete, and is not to be awaited.
    #[inline]
    pub fn take_ready(&mut self) -> Option<Asked> {
        let Progress::Checking(check) = &mut self.progress else {
            return None;
        };
        Some(Asked {
            verdict: check.take_ready()?,
            charge: None,
            tier: self.tier.take(),
        })
    }
}

impl Future for Asking {
    type Output = Asked;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Asked> {
        let (verdict, charge) = match &mut self.progress {
            Progress::Checking(check) => (ready!(Pin::new(check).poll(cx)), None),
            Progress::Charging(charging) => ready!(Pin::new(&mut **charging).poll(cx)),
        };
        let tier = self.tier.take();
        Poll::Ready(Asked {
            verdict,
            charge,
            tier,
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
