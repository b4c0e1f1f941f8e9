//! The check of a request, and its admission.

use std::{fmt, sync::Arc};

use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse, body::MessageBody, rt};
use ratelimit_core::{Decision, Limiter};
use ratelimit_http::middleware::{BodyGuard, DecisionSharing};

use crate::{
    body::ResponseBody,
    framework::{Config, HttpAdmission},
};

/// A request that passed, until its response ends.
///
/// - It carries the decision from the check to the response, whose header fields report it.
/// - It holds the request's slot under a concurrency limit. Dropping it releases the slot.
/// - Dropping it refunds nothing.
#[must_use = "the response reports the remaining budget"]
pub struct Admission {
    admission: Option<HttpAdmission>,
    config: Arc<Config>,
}

impl Admission {
    /// The decision, or `None` if the request was exempt or no store decided.
    pub fn decision(&self) -> Option<&Decision> {
        self.admission.as_ref()?.decision()
    }

    /// Writes the header fields of a response, unless it has stricter ones.
    ///
    /// It settles nothing; [`finish`](Self::finish) does everything that the middleware does with a response.
    pub fn write_headers<B>(&self, response: &mut HttpResponse<B>) {
        if let Some(admission) = &self.admission {
            self.config.write_headers(admission, response.headers_mut());
            share(&self.config, admission, response);
        }
    }

    /// Writes the header fields of a response, settles the charge by it, and holds the slot until its body
    /// ends.
    pub fn finish<B: MessageBody>(
        self,
        mut response: HttpResponse<B>,
    ) -> HttpResponse<ResponseBody<B>> {
        let guard = self.settle(&mut response);
        response.map_body(|_, body| ResponseBody::new(body, guard))
    }

    /// Settles the charge by the head of a response and writes its header fields. The guard belongs to the
    /// body.
    pub(crate) fn settle<B>(mut self, response: &mut HttpResponse<B>) -> Option<Box<BodyGuard>> {
        let admission = self.admission.as_mut()?;
        share(&self.config, admission, response);
        let status = response.status().as_u16();
        self.config
            .finish(admission, status, response.headers_mut())
    }

    /// Settles the charge by an error that has no response yet.
    pub(crate) fn fail(self, error: &Error) {
        if let Some(admission) = self.admission {
            let status = error.as_response_error().status_code();
            self.config.finish_error(admission, status.as_u16());
        }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admission").field(&self.admission).finish()
    }
}

/// Inserts the decision into the extensions of a response, for outer middleware.
fn share<B>(config: &Config, admission: &HttpAdmission, response: &mut HttpResponse<B>) {
    if config.sharing == DecisionSharing::RequestAndResponse
        && let Some(decision) = admission.decision()
    {
        response.extensions_mut().insert(decision.clone());
    }
}

/// Decides a request, and waits for the delay of a shaping limit.
pub(crate) async fn check(
    config: Arc<Config>,
    limiter: &Limiter,
    request: &HttpRequest,
) -> Result<Admission, HttpResponse> {
    let Some((delay, admission)) = config.decide(limiter, request).await? else {
        let admission = None;
        return Ok(Admission { admission, config });
    };
    if let Some(slot) = admission.slot() {
        let outer = request.extensions_mut().remove();
        request.extensions_mut().insert(slot.inside(outer));
    }
    if config.sharing != DecisionSharing::Off
        && let Some(decision) = admission.decision()
    {
        request.extensions_mut().insert(decision.clone());
    }
    if !delay.is_zero() {
        rt::time::sleep(delay).await;
    }
    let admission = Some(admission);
    Ok(Admission { admission, config })
}
