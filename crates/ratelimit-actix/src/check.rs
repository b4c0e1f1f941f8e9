//! The check of a request, and its admission.

use std::{fmt, sync::Arc};

use actix_web::{
    Error, HttpMessage as _, HttpRequest, HttpResponse,
    http::{StatusCode, header::HeaderMap},
    rt,
};
use ratelimit_core::Limiter;
use ratelimit_http::middleware::{BodyGuard, CheckOutcome, DecisionSharing};

use crate::framework::{Config, HttpAdmission};

/// The admission of a request that passed.
///
/// Dropping it keeps the charge and releases the slot.
pub(crate) struct Admission {
    admission: Option<HttpAdmission>,
    config: Arc<Config>,
}

impl Admission {
    /// Settles the charge by the head of a response and writes its header fields. The guard belongs to the
    /// body.
    pub(crate) fn finish(
        mut self,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) -> Option<Box<BodyGuard>> {
        let admission = self.admission.as_mut()?;
        self.config.finish(admission, status.as_u16(), headers)
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

/// Decides a request, and waits for the delay of a shaping limit.
pub(crate) async fn check(
    config: Arc<Config>,
    limiter: &Limiter,
    request: &HttpRequest,
) -> Result<Admission, HttpResponse> {
    let (delay, admission) = match config.check(limiter, request) {
        CheckOutcome::Bypassed => {
            let admission = None;
            return Ok(Admission { admission, config });
        }
        CheckOutcome::Rejected(response) => return Err(response),
        CheckOutcome::Admitted(delay, admission) => (delay, admission),
        CheckOutcome::Pending(pending) => config.complete(request, pending.await)?,
    };
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
