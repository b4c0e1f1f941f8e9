//! A request that passed, until its response ends.

use std::marker::PhantomData;

use crate::policy::SettleSource;
use crate::{
    middleware::{
        body_guard::{BodyGuard, BodyKind, SlotGuard},
        config::Config,
        framework::{Framework, RequestHead},
    },
    response::LimitReport,
};
use ratelimit_core::{Decision, Policy, Reservation, Verdict};

/// A request that passed: what its response is to tell, and what is held until that ends.
///
/// Dropping it leaves the request charged, and gives its slot back.
#[derive(Debug)]
#[must_use = "dropping it gives the request's slot back"]
pub struct Admission<F: Framework> {
    verdict: Option<Verdict>,
    tier: Option<Policy>,
    guard: Option<Box<BodyGuard>>,
    _framework: PhantomData<F>,
}

impl<F: Framework> Admission<F> {
    /// The decision; nothing where no store decided.
    #[inline]
    pub fn decision(&self) -> Option<&Decision> {
        self.verdict.as_ref()?.decision()
    }

    /// Holds what the request was charged as well.
    pub(crate) fn hold(&mut self, request: &F::Request, charge: Reservation) {
        let guard = || Box::new(BodyGuard::new(body_of::<F>(request)));
        self.guard.get_or_insert_with(guard).charge(charge);
    }

    /// The slot that the request holds, under policies with a concurrency limit.
    #[inline]
    pub fn slot(&self) -> Option<SlotGuard> {
        self.guard.as_ref()?.slot()
    }
}

impl<F: Framework> Config<F> {
    /// What is told and held for a request that passed.
    #[inline]
    pub(crate) fn admission(
        &self,
        request: &F::Request,
        verdict: Option<Verdict>,
        tier: Option<Policy>,
    ) -> Admission<F> {
        let signal = self.policy.policy().throttle().signal();
        Admission {
            verdict,
            tier,
            guard: signal.map(|signal| {
                let mut guard = BodyGuard::new(body_of::<F>(request));
                guard.enter(signal.enter());
                Box::new(guard)
            }),
            _framework: PhantomData,
        }
    }

    /// Tells in the header fields of a response what was decided.
    #[inline]
    pub fn write_headers(&self, admission: &Admission<F>, map: &mut F::Map) {
        let (verdict, tier) = (admission.verdict.as_ref(), admission.tier.as_ref());
        let report =
            verdict.and_then(|verdict| LimitReport::of(verdict, self.policy.policy(), tier));
        if let Some(report) = report {
            self.headers.write_report(&report, map);
        }
    }

    /// Settles what the head of a response decides, tells what was decided, and leaves what is held
    /// until the body ends.
    #[inline]
    pub fn finish(
        &self,
        admission: &mut Admission<F>,
        status: u16,
        map: &mut F::Map,
    ) -> Option<Box<BodyGuard>> {
        if let Some(guard) = &mut admission.guard {
            self.settle(guard, status, map);
        }
        self.write_headers(admission, map);
        admission.guard.take()
    }

    /// Settles what the status of an error decides, which has no response of its own.
    pub fn finish_error(&self, mut admission: Admission<F>, status: u16) {
        if let Some(guard) = &mut admission.guard
            && !self.stays_charged(status)
        {
            guard.settle(0);
        }
    }

    /// Whether a request whose response has this status stays charged.
    fn stays_charged(&self, status: u16) -> bool {
        let statuses = self.policy.charge_on();
        statuses.is_none_or(|statuses| statuses.contains(status))
    }

    fn settle(&self, guard: &mut BodyGuard, status: u16, map: &F::Map) {
        if !self.stays_charged(status) {
            return guard.settle(0);
        }
        match self.policy.settle_source() {
            None => guard.keep_charge(),
            Some(SettleSource::ResponseBytes) => {
                let announced = F::lines_of(map, "content-length").next();
                guard.settle_by_bytes(announced.and_then(number));
            }
            Some(by) => {
                let field = by.field().unwrap_or_default();
                match by.value_in(F::lines_of(map, field)) {
                    Some(actual) => guard.settle(actual),
                    None => guard.keep_charge(),
                }
            }
        }
    }
}

fn body_of<F: Framework>(request: &F::Request) -> BodyKind {
    match F::head(request).method() {
        "HEAD" => BodyKind::None,
        _ => BodyKind::Sent,
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}
