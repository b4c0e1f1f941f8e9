//! The extractor of the current decision.

use std::{
    convert::Infallible,
    future::{Ready, ready},
};

use actix_web::{FromRequest, HttpMessage as _, HttpRequest, dev::Payload};
use ratelimit_core::Decision;

/// The decision of the nearest limit around a handler about its request.
///
/// It is `None` if there is no limit, the request was exempt, no store decided, or the limit has
/// [`DecisionSharing::Off`](crate::DecisionSharing::Off).
///
/// ```
/// use ratelimit_actix::CurrentDecision;
///
/// async fn left(CurrentDecision(decision): CurrentDecision) -> String {
///     decision.map_or_else(String::new, |decision| format!("{} left", decision.remaining))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentDecision(pub Option<Decision>);

impl FromRequest for CurrentDecision {
    type Error = Infallible;
    type Future = Ready<Result<CurrentDecision, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(CurrentDecision(request.extensions().get().cloned())))
    }
}
