//! A request decided by hand, where there is no service to wrap.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{Response, request::Parts};
use ratelimit_core::{Decision, Limiter, Verdict, adapter::Start};

use crate::{
    framework::{Settings, tell},
    layer::RateLimitLayer,
};

impl RateLimitLayer {
    /// Decides a request without a service: for handlers, and for adapters of frameworks.
    ///
    /// It is what the layer does before it calls its service, waiting for a shaping limit included.
    /// What it puts into the response afterwards is [`Passed::tell`].
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
        let refreshed = self.settings().refreshed();
        let settings = refreshed.unwrap_or_else(|| Arc::clone(self.settings()));
        settings.own.prepare(request);
        let (key, cost) = match settings.start(request) {
            Start::Pass => {
                let verdict = None;
                return Ok(Passed { verdict, settings });
            }
            Start::Refuse(answer) => return Err(answer),
            Start::Ask { key, cost } => (key, cost),
        };
        let verdict = limiter.check_cost(settings.policy(), &key, cost).await;
        let delay = settings.judge(request, &verdict)?;
        settings
            .own
            .share(verdict.decision(), &mut request.extensions);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let verdict = Some(verdict);
        Ok(Passed { verdict, settings })
    }
}

/// A request that passed, and what its response is to tell.
#[must_use = "the response tells what is left"]
pub struct Passed {
    verdict: Option<Verdict>,
    settings: Arc<Settings>,
}

impl Passed {
    /// The decision; nothing when the request was exempt, or no store decided.
    pub fn decision(&self) -> Option<&Decision> {
        self.verdict.as_ref()?.decision()
    }

    /// Tells in the response what is left, unless it says something stricter already.
    pub fn tell<B>(&self, response: &mut Response<B>) {
        if let Some(verdict) = &self.verdict {
            tell(&self.settings, verdict, response);
        }
    }
}

impl fmt::Debug for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Passed").field(&self.verdict).finish()
    }
}
