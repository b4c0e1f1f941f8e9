//! A request that passed, until its response ends.

use std::marker::PhantomData;

use crate::adapter::{
    framework::{Framework, RequestHead},
    held::{Body, Held, Slot},
    settings::Settings,
    telling::Telling,
};
use crate::{
    decision::Decision,
    limiter::{Reservation, Verdict},
    policy::{Policy, SettleBy},
};

/// A request that passed: what its response is to tell, and what is held until that ends.
///
/// Dropping it leaves the request charged, and gives its slot back.
#[derive(Debug)]
#[must_use = "dropping it gives the request's slot back"]
pub struct Passage<F: Framework> {
    verdict: Option<Verdict>,
    tier: Option<Policy>,
    held: Option<Box<Held>>,
    _framework: PhantomData<F>,
}

impl<F: Framework> Passage<F> {
    /// The decision; nothing where no store decided.
    #[inline]
    pub fn decision(&self) -> Option<&Decision> {
        self.verdict.as_ref()?.decision()
    }

    /// What the limiter said, to be lent: a response tells what stands here when it comes.
    #[inline]
    pub const fn verdict_mut(&mut self) -> &mut Option<Verdict> {
        &mut self.verdict
    }

    /// Holds what the request was charged as well.
    pub(super) fn hold(&mut self, request: &F::Request, charge: Reservation) {
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
        verdict: Option<Verdict>,
        tier: Option<Policy>,
    ) -> Passage<F> {
        let signal = self.policy.throttle().signal();
        Passage {
            verdict,
            tier,
            held: signal.map(|signal| {
                let mut held = Held::new(body_of::<F>(request));
                held.enter(signal.enter());
                Box::new(held)
            }),
            _framework: PhantomData,
        }
    }

    /// Tells in the header fields of a response what was decided.
    #[inline]
    pub fn tell(&self, passage: &Passage<F>, map: &mut F::Map) {
        let (verdict, tier) = (passage.verdict.as_ref(), passage.tier.as_ref());
        let telling = verdict.and_then(|verdict| Telling::of(verdict, &self.policy, tier));
        if let Some(telling) = telling {
            self.fields.tell(&telling, map);
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
        self.tell(passage, map);
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
