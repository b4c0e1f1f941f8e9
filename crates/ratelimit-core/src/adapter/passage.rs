//! A request that passed, until its response ends.

use super::{
    ask::Asked,
    framework::{Framework, RequestHead},
    held::{Body, Held, Slot},
    settings::Settings,
};
use crate::{
    decision::Decision,
    limiter::Verdict,
    policy::{Policy, SettleBy},
    signal::Signal,
};

/// A request that passed: what its response is to tell, and what is held until that ends.
///
/// Dropping it leaves the request charged, and gives its slot back.
#[derive(Debug)]
#[must_use = "dropping it gives the request's slot back"]
pub struct Passage {
    verdict: Verdict,
    tier: Option<Policy>,
    held: Option<Box<Held>>,
}

impl Passage {
    /// The decision; nothing where no store decided.
    #[inline]
    pub const fn decision(&self) -> Option<&Decision> {
        self.verdict.decision()
    }

    /// The slot that the request holds, under policies with a concurrency limit.
    #[inline]
    pub fn slot(&self) -> Option<Slot> {
        self.held.as_ref()?.slot()
    }
}

impl<F: Framework> Settings<F> {
    /// What is held for a request that passed.
    #[inline]
    pub(super) fn passage(&self, request: &F::Request, asked: Asked) -> Passage {
        let signal = self.policy.throttle_mode().signal();
        let held = match (asked.charge, signal) {
            (None, None) => None,
            (charge, signal) => {
                let body = match F::head(request).method() {
                    "HEAD" => Body::None,
                    _ => Body::Sent,
                };
                Some(Box::new(Held::new(charge, signal.map(Signal::enter), body)))
            }
        };
        Passage {
            verdict: asked.verdict,
            tier: asked.tier,
            held,
        }
    }

    /// Tells in the header fields of a response what was decided.
    #[inline]
    pub fn tell(&self, passage: &Passage, map: &mut F::Map) {
        self.tell_verdict(&passage.verdict, passage.tier.as_ref(), map);
    }

    /// Settles what the head of a response decides, tells what was decided, and leaves what is held
    /// until the body ends.
    #[inline]
    pub fn finish(&self, mut passage: Passage, status: u16, map: &mut F::Map) -> Option<Box<Held>> {
        if let Some(held) = &mut passage.held {
            self.settle(held, status, map);
        }
        self.tell(&passage, map);
        passage.held
    }

    /// Settles what the status of an error decides, which has no response of its own.
    pub fn fail(&self, mut passage: Passage, status: u16) {
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

fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}
