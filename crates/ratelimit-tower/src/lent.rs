//! Decisions for handlers, there while they are polled.

use std::{cell::RefCell, mem};

use ratelimit_core::{Decision, Verdict};

thread_local! {
    static LOAN: RefCell<Loan> = const { RefCell::new(Loan { verdict: None, access: Access::Open }) };
}

struct Loan {
    verdict: Option<Verdict>,
    access: Access,
}

/// Whether a handler gets what is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Open,
    /// A decision that is nearer to the handler stands in the request's extensions.
    Withdrawn,
}

/// What the nearest layer around decided that lends its decisions, while its service is polled.
///
/// For extractors of frameworks. A service that hands its request to another task finds nothing there:
/// [`share_decision`](crate::RateLimitLayer::share_decision) is for those.
pub fn lent_decision() -> Option<Decision> {
    let lent = LOAN.try_with(|loan| {
        let loan = loan.borrow();
        let lent = loan.verdict.as_ref().and_then(Verdict::decision);
        lent.filter(|_| loan.access == Access::Open).cloned()
    });
    lent.unwrap_or_default()
}

/// Hides what is lent, for as long as its layer lends it.
pub(crate) fn withdraw() {
    let _ = LOAN.try_with(|loan| loan.borrow_mut().access = Access::Withdrawn);
}

/// A decision that is lent for as long as this lives.
pub(crate) struct Lent<'a> {
    verdict: &'a mut Option<Verdict>,
    access: &'a mut Access,
}

impl<'a> Lent<'a> {
    #[inline]
    pub(crate) fn new(
        verdict: &'a mut Option<Verdict>,
        access: &'a mut Access,
    ) -> Option<Lent<'a>> {
        // Where no store decided, what a layer further out lends stays there.
        verdict.as_ref()?.decision()?;
        let mut lent = Lent { verdict, access };
        lent.swap();
        Some(lent)
    }

    #[inline]
    fn swap(&mut self) {
        // A thread that ends lends nothing any more.
        let _ = LOAN.try_with(|loan| {
            let mut loan = loan.borrow_mut();
            mem::swap(&mut loan.verdict, self.verdict);
            mem::swap(&mut loan.access, self.access);
        });
    }
}

impl Drop for Lent<'_> {
    /// What a layer further out lends stands there again.
    #[inline]
    fn drop(&mut self) {
        self.swap();
    }
}
