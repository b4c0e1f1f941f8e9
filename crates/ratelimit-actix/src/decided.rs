//! What was decided, for the handler.

use std::{
    convert::Infallible,
    future::{Ready, ready},
};

use actix_web::{FromRequest, HttpMessage as _, HttpRequest, dev::Payload};
use ratelimit_core::Decision;

/// What the nearest limit around a handler decided about its request.
///
/// Nothing where there is no limit, the request was exempt, or no store decided.
///
/// ```
/// use ratelimit_actix::Decided;
///
/// async fn left(Decided(decision): Decided) -> String {
///     decision.map_or_else(String::new, |decision| format!("{} left", decision.remaining))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided(pub Option<Decision>);

impl FromRequest for Decided {
    type Error = Infallible;
    type Future = Ready<Result<Decided, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Decided(request.extensions().get().cloned())))
    }
}
