//! A request that passed, until its response ends.

use super::{
    framework::{Framework, RequestHead},
    held::{Body, Held, Slot},
    settings::Settings,
    telling::Telling,
};
use crate::{
    decision::Decision,
    limiter::{Charge, Verdict},
    policy::{Policy, SettleBy},
};

/// What a [`Passage`] keeps of a decision, beside what its response is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Fields,
    /// All of it, in a box.
    Decision,
}

/// A request that passed: what its response is to tell, and what is held until that ends.
///
/// Dropping it leaves the request charged, and gives its slot back.
#[derive(Debug)]
#[must_use = "dropping it gives the request's slot back"]
pub struct Passage<F: Framework> {
    telling: Option<Telling<F>>,
    decision: Option<Box<Decision>>,
    tier: Option<Policy>,
    held: Option<Box<Held>>,
}

impl<F: Framework> Passage<F> {
    /// The decision, where it is kept; nothing where no store decided.
    #[inline]
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_deref()
    }

    /// Takes the decision, where it is kept.
    #[inline]
    pub fn take_decision(&mut self) -> Option<Box<Decision>> {
        self.decision.take()
    }

    /// Holds what the request was charged as well.
    pub(super) fn hold(&mut self, request: &F::Request, charge: Charge) {
        let held = || Box::new(Held::new(body_of::<F>(request)));
        self.held.get_or_insert_with(held).charge(charge);
    }

    /// The slot that the request holds, under policies with a concurrency limit.
    #[inline]
    pub fn slot(&self) -> Option<Slot> {
        self.held.as_ref()?.slot()
    }
}

impl<F: Framework> Settings<F> {
    /// What is told and held for a request that passed.
    #[inline]
    pub(super) fn passage(
        &self,
        request: &F::Request,
        verdict: &Verdict,
        tier: Option<Policy>,
        keep: Keep,
    ) -> Passage<F> {
        let decision = match keep {
            Keep::Fields => None,
            Keep::Decision => verdict.decision().cloned().map(Box::new),
        };
        let signal = self.policy.throttle_mode().signal();
        Passage {
            telling: self.fields.telling(&self.policy, verdict),
            decision,
            tier,
            held: signal.map(|signal| {
                let mut held = Held::new(body_of::<F>(request));
                held.enter(signal.enter());
                Box::new(held)
            }),
        }
    }

    /// Tells in the header fields of a response what was decided.
    pub fn tell(&self, passage: &Passage<F>, map: &mut F::Map) {
        if let Some(telling) = passage.telling.clone() {
            self.fields.tell(telling, passage.tier.as_ref(), map);
        }
    }

    /// Settles what the head of a response decides, tells what was decided, and leaves what is held
    /// until the body ends.
    #[inline]
    pub fn finish(
        &self,
        passage: &mut Passage<F>,
        status: u16,
        map: &mut F::Map,
    ) -> Option<Box<Held>> {
        if let Some(held) = &mut passage.held {
            self.settle(held, status, map);
        }
        if let Some(telling) = passage.telling.take() {
            self.fields.tell(telling, passage.tier.as_ref(), map);
        }
        passage.held.take()
    }

    /// Settles what the status of an error decides, which has no response of its own.
    pub fn fail(&self, mut passage: Passage<F>, status: u16) {
        if let Some(held) = &mut passage.held
            && !self.policy.charged_on().includes(status)
        {
            held.settle(0);
        }
    }

    fn settle(&self, held: &mut Held, status: u16, map: &F::Map) {
        if !self.policy.charged_on().includes(status) {
            return held.settle(0);
        }
        match self.policy.settled_by() {
            None => held.keep(),
            Some(SettleBy::ResponseBytes) => {
                let announced = F::lines_of(map, "content-length").next();
                held.settle_by_bytes(announced.and_then(number));
            }
            Some(by) => {
                let field = by.field().unwrap_or_default();
                match by.told(F::lines_of(map, field)) {
                    Some(actual) => held.settle(actual),
                    None => held.keep(),
                }
            }
        }
    }
}

fn body_of<F: Framework>(request: &F::Request) -> Body {
    match F::head(request).method() {
        "HEAD" => Body::None,
        _ => Body::Sent,
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}
