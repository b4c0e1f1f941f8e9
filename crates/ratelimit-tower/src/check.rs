//! A request decided by hand, where there is no service to wrap.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{Response, request::Parts};
use ratelimit_core::{Decision, Limiter, adapter::Way};

use crate::{
    body::ResponseBody,
    framework::{Passage, Settings, Sharing, finish, tell},
    layer::RateLimitLayer,
    lent::{Access, Lent},
};

impl RateLimitLayer {
    /// Decides a request without a service: for handlers, and for adapters of frameworks.
    ///
    /// It is what the layer does before it calls its service, waiting for a shaping limit included.
    /// What it does with the response afterwards is [`Passed::finish`].
    ///
    /// # Errors
    ///
    /// The answer to a request that does not pass.
    pub async fn check(&self, request: &mut Parts) -> Result<Passed, Response<Bytes>> {
        self.check_by(&self.settings().limiter, request).await
    }

    /// The same with the budgets of another limiter than the layer's own.
    ///
    /// # Errors
    ///
    /// The answer to a request that does not pass.
    pub async fn check_by(
        &self,
        limiter: &Limiter,
        request: &mut Parts,
    ) -> Result<Passed, Response<Bytes>> {
        let settings = self.settings().current();
        let (delay, passage) = match settings.decide(limiter, request) {
            Way::Pass => {
                return Ok(Passed {
                    passage: None,
                    settings,
                    access: Access::Open,
                });
            }
            Way::Refuse(answer) => return Err(answer),
            Way::Go(delay, passage) => (delay, passage),
            Way::Ask(asking) => settings.judge(request, asking.await)?,
        };
        settings
            .own
            .share_by_hand(&passage, &mut request.extensions);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(Passed::new(passage, settings))
    }
}

/// A request that passed, and what its response is to tell.
///
/// It holds the slot that the request takes under a concurrency limit. Dropping it gives the slot back,
/// and leaves charged what was charged.
#[must_use = "the response tells what is left"]
pub struct Passed {
    passage: Option<Passage>,
    settings: Arc<Settings>,
    access: Access,
}

impl Passed {
    #[inline]
    pub(crate) const fn new(passage: Passage, settings: Arc<Settings>) -> Passed {
        Passed {
            passage: Some(passage),
            settings,
            access: Access::Open,
        }
    }

    /// The decision; nothing when the request was exempt, or no store decided.
    pub fn decision(&self) -> Option<&Decision> {
        self.passage.as_ref()?.decision()
    }

    /// Lends the decision, where that is asked for, until the answer is dropped.
    #[inline]
    pub(crate) fn lend(&mut self) -> Option<Lent<'_>> {
        if self.settings.own.sharing == Sharing::Off {
            return None;
        }
        Lent::new(self.passage.as_mut()?.verdict_mut(), &mut self.access)
    }

    /// Tells in the response what is left, unless it says something stricter already.
    ///
    /// Nothing is settled by it: [`finish`](Self::finish) does what a layer does with a response.
    pub fn tell<B>(&self, response: &mut Response<B>) {
        if let Some(passage) = &self.passage {
            tell(&self.settings, passage, response);
        }
    }

    /// Tells in the response what is left, settles by it where the policy says so, and holds the slot
    /// until its body ends.
    pub fn finish<B>(mut self, response: Response<B>) -> Response<ResponseBody<B>> {
        self.end(response)
    }

    /// The same where it stands; there is nothing left to finish afterwards.
    #[inline]
    pub(crate) fn end<B>(&mut self, response: Response<B>) -> Response<ResponseBody<B>> {
        finish(&self.settings, self.passage.as_mut(), response)
    }
}

impl fmt::Debug for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Passed").field(&self.passage).finish()
    }
}
