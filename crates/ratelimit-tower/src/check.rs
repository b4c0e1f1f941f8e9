//! Deciding a request without a service.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{Response, request::Parts};
use ratelimit_core::{Decision, Limiter};

use crate::{
    body::ResponseBody,
    framework::{Config, HttpAdmission, finish, insert_into_request, write_headers},
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
    /// Decides a request with the budgets of `limiter`. It is for adapters of frameworks.
    ///
    /// # Errors
    ///
    /// The response to a request that does not pass.
    #[doc(hidden)]
    pub async fn check(
        config: Arc<Config>,
        limiter: &Limiter,
        request: &mut Parts,
    ) -> Result<Admission, Response<Bytes>> {
        let Some((delay, admission)) = config.decide(limiter, request).await? else {
            return Ok(Admission {
                admission: None,
                config,
            });
        };
        insert_into_request(&config, &admission, &mut request.extensions);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(Admission {
            admission: Some(admission),
            config,
        })
    }

    /// The decision, or `None` if the request was exempt or no store decided.
    pub fn decision(&self) -> Option<&Decision> {
        self.admission.as_ref()?.decision()
    }

    /// Writes the header fields of a response, unless it has stricter ones.
    ///
    /// It settles nothing; [`finish`](Self::finish) does everything that a layer does with a response.
    pub fn write_headers<B>(&self, response: &mut Response<B>) {
        if let Some(admission) = &self.admission {
            write_headers(&self.config, admission, response);
        }
    }

    /// Writes the header fields of a response, settles the charge by it, and holds the slot until its body
    /// ends.
    pub fn finish<B>(mut self, mut response: Response<B>) -> Response<ResponseBody<B>> {
        let guard = finish(&self.config, self.admission.as_mut(), &mut response);
        response.map(|body| ResponseBody::inner(body, guard))
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admission").field(&self.admission).finish()
    }
}
