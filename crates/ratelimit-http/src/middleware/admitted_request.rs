//! The admission of a request, from the check to the response.

use std::marker::PhantomData;

use crate::policy::SettleSource;
use crate::{
    framework::{Framework, RequestHead},
    middleware::{
        body_counter::BodyCount,
        body_guard::{BodyGuard, BodyKind, SlotGuard},
        config::Config,
    },
    response::{LimitReport, parse_number},
};
use ratelimit_core::{Decision, Policy, Reservation, Verdict};

/// The admission of a request that passed.
///
/// - It carries the verdict from the check to the response, whose headers report it.
/// - It holds the request's reservation, slot and place among the requests in flight.
/// - [`Config::finish`] settles it by the response. Dropping it before keeps the charge and releases the
///   slot.
#[derive(Debug)]
#[must_use = "dropping it releases the request's slot"]
pub struct AdmittedRequest<F: Framework> {
    verdict: Option<Verdict>,
    tier: Option<Policy>,
    guard: Option<Box<BodyGuard>>,
    _framework: PhantomData<F>,
}

impl<F: Framework> AdmittedRequest<F> {
    /// The admission by this verdict, under the policy of this tier if it is not the base policy.
    #[inline]
    pub(crate) const fn new(
        verdict: Option<Verdict>,
        tier: Option<Policy>,
        guard: Option<Box<BodyGuard>>,
    ) -> AdmittedRequest<F> {
        AdmittedRequest {
            verdict,
            tier,
            guard,
            _framework: PhantomData,
        }
    }

    /// The decision, or `None` if the store did not decide and the failure mode let the request pass.
    #[inline]
    pub fn decision(&self) -> Option<&Decision> {
        self.verdict.as_ref()?.decision()
    }

    /// Holds the reservation of the request.
    pub(crate) fn hold(&mut self, request: &F::Request, reservation: Reservation) {
        let guard = || Box::new(BodyGuard::new(body_of::<F>(request)));
        self.guard.get_or_insert_with(guard).hold(reservation);
    }

    /// Holds the charge until the body of the request ends as well.
    pub(crate) fn count_body(&self, count: &BodyCount) {
        let guard = self.guard.as_ref();
        if let Some(charge) = guard.and_then(|guard| guard.reservation()) {
            count.hold(charge);
        }
    }

    /// The request's slot under a concurrency limit, for work that outlives the response.
    #[inline]
    pub fn slot(&self) -> Option<SlotGuard> {
        self.guard.as_ref()?.slot()
    }
}

impl<F: Framework> Config<F> {
    /// Enters a request among those in flight if the policy is elastic.
    pub(crate) fn enter(&self, request: &F::Request) -> Option<Box<BodyGuard>> {
        let signal = self.policy.policy().throttle().signal()?;
        let mut guard = BodyGuard::new(body_of::<F>(request));
        guard.enter(signal.enter());
        Some(Box::new(guard))
    }

    /// Writes the header fields of a response. It settles nothing.
    ///
    /// A stricter report of an inner layer is kept.
    #[inline]
    pub fn write_headers(&self, admission: &AdmittedRequest<F>, map: &mut F::Map) {
        let (verdict, tier) = (admission.verdict.as_ref(), admission.tier.as_ref());
        let report =
            verdict.and_then(|verdict| LimitReport::of(verdict, self.policy.policy(), tier));
        if let Some(report) = report {
            self.headers.write_report(&report, map);
        }
    }

    /// Settles the charge by the head of a response and writes its header fields.
    ///
    /// - A response whose status is not in `charge_on` refunds the request.
    /// - A settle source in the headers settles the charge at once, one in the body when the body ends.
    /// - The guard that is returned belongs to the body: it holds the slot and counts bytes.
    #[inline]
    pub fn finish(
        &self,
        admission: &mut AdmittedRequest<F>,
        status: u16,
        map: &mut F::Map,
    ) -> Option<Box<BodyGuard>> {
        if let Some(guard) = &mut admission.guard {
            self.settle(guard, status, map);
        }
        self.write_headers(admission, map);
        admission.guard.take()
    }

    /// Settles the charge by the status of an error that has no response yet.
    ///
    /// The request is refunded if the status is not in `charge_on`.
    pub fn finish_error(&self, mut admission: AdmittedRequest<F>, status: u16) {
        if let Some(guard) = &mut admission.guard
            && !self.stays_charged(status)
        {
            guard.refund();
        }
    }

    /// Whether a request whose response has this status stays charged.
    fn stays_charged(&self, status: u16) -> bool {
        let statuses = self.policy.charge_on();
        statuses.is_none_or(|statuses| statuses.contains(status))
    }

    /// Settles by the status and the headers of a response.
    fn settle(&self, guard: &mut BodyGuard, status: u16, map: &F::Map) {
        if !self.stays_charged(status) {
            return guard.refund();
        }
        match self.policy.settle_source() {
            None => guard.keep_charge(),
            Some(SettleSource::ResponseBytes) => {
                let announced = F::lines_of(map, "content-length").next();
                guard.settle_by_bytes(announced.and_then(parse_number));
            }
            Some(source) => {
                let field = source.field().unwrap_or_default();
                match source.value_in(F::lines_of(map, field)) {
                    Some(actual) => guard.settle(actual),
                    None => guard.keep_charge(),
                }
            }
        }
    }
}

/// Whether the response to this request has a body.
fn body_of<F: Framework>(request: &F::Request) -> BodyKind {
    match F::head(request).method() {
        "HEAD" => BodyKind::None,
        _ => BodyKind::Sent,
    }
}
