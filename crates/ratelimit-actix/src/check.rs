//! The way of one request: checking, waiting, telling.

use std::{fmt, sync::Arc};

use actix_web::{
    Error, HttpMessage as _, HttpRequest, HttpResponse,
    http::{StatusCode, header::HeaderMap},
    rt,
};
use ratelimit_core::{
    Limiter,
    adapter::{Held, Way},
};

use crate::framework::{Passage, Settings};

/// A request that passed, and what its response is to tell.
///
/// Dropping it leaves the request charged, and gives its slot back.
pub(crate) struct Passed {
    passage: Option<Passage>,
    settings: Arc<Settings>,
}

impl Passed {
    /// Settles by the head of a response, tells in it what is left, and leaves what is held until its
    /// body ends.
    pub(crate) fn finish(
        mut self,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) -> Option<Box<Held>> {
        let passage = self.passage.as_mut()?;
        self.settings.finish(passage, status.as_u16(), headers)
    }

    /// Settles by an error that has no response yet.
    pub(crate) fn fail(self, error: &Error) {
        if let Some(passage) = self.passage {
            let status = error.as_response_error().status_code();
            self.settings.fail(passage, status.as_u16());
        }
    }
}

impl fmt::Debug for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Passed").field(&self.passage).finish()
    }
}

/// Decides a request, and waits where a shaping limit asks for it.
pub(crate) async fn check(
    settings: Arc<Settings>,
    limiter: &Limiter,
    request: &HttpRequest,
) -> Result<Passed, HttpResponse> {
    let (delay, passage) = match settings.decide(limiter, request) {
        Way::Pass => {
            let passage = None;
            return Ok(Passed { passage, settings });
        }
        Way::Refuse(answer) => return Err(answer),
        Way::Go(delay, passage) => (delay, passage),
        Way::Ask(asking) => settings.judge(request, asking.await)?,
    };
    if let Some(decision) = passage.decision() {
        request.extensions_mut().insert(decision.clone());
    }
    if !delay.is_zero() {
        rt::time::sleep(delay).await;
    }
    let passage = Some(passage);
    Ok(Passed { passage, settings })
}
