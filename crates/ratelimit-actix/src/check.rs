//! The way of one request: checking, waiting, telling.

use std::{fmt, sync::Arc};

use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, http::header::HeaderMap, rt};
use ratelimit_core::{Limiter, Verdict};

use crate::settings::Settings;

/// A request that passed, and what its response is to tell.
pub(crate) struct Passed {
    verdict: Option<Verdict>,
    settings: Arc<Settings>,
}

impl Passed {
    const fn untold(settings: Arc<Settings>) -> Passed {
        let verdict = None;
        Passed { verdict, settings }
    }

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
    if settings.passes(request) {
        return Ok(Passed::untold(settings));
    }
    let key = match settings.key.extract(request) {
        Ok(key) => key,
        Err(why) => {
            let answer = settings.refuse(request, why);
            if !settings.is_shadow() {
                return Err(answer);
            }
            return Ok(Passed::untold(settings));
        }
    };
    let cost = settings.cost_of(request);
    let verdict = limiter.check_cost(&settings.policy, &key, cost).await;
    if !settings.lets_pass(&verdict) {
        return Err(settings.deny(request, &verdict));
    }
    if let Some(decision) = verdict.decision() {
        request.extensions_mut().insert(decision.clone());
    }
    let delay = settings.delay(&verdict);
    if !delay.is_zero() {
        rt::time::sleep(delay).await;
    }
    let verdict = Some(verdict);
    Ok(Passed { verdict, settings })
}
