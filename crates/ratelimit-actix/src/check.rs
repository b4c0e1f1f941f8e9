//! The way of one request: checking, waiting, telling.

use std::{fmt, sync::Arc};

use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, http::header::HeaderMap, rt};
use ratelimit_core::{Limiter, Verdict, adapter::Start};

use crate::framework::Settings;

/// A request that passed, and what its response is to tell.
pub(crate) struct Passed {
    verdict: Option<Verdict>,
    settings: Arc<Settings>,
}

impl Passed {
    /// Tells in a response what is left, unless it says something stricter already.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        if let Some(verdict) = &self.verdict {
            self.settings.tell(verdict, headers);
        }
    }
}

impl fmt::Debug for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Passed").field(&self.verdict).finish()
    }
}

/// Decides a request, and waits where a shaping limit asks for it.
pub(crate) async fn check(
    settings: Arc<Settings>,
    limiter: &Limiter,
    request: &HttpRequest,
) -> Result<Passed, HttpResponse> {
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
    if let Some(decision) = verdict.decision() {
        request.extensions_mut().insert(decision.clone());
    }
    if !delay.is_zero() {
        rt::time::sleep(delay).await;
    }
    let verdict = Some(verdict);
    Ok(Passed { verdict, settings })
}
