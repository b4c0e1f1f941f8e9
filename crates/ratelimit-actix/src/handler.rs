//! The code that `#[rate_limit(...)]` expands to: check, extract, call.

use std::{future::Future, sync::Arc};

use actix_web::{
    FromRequest, HttpMessage as _, HttpRequest, HttpResponse, Responder,
    body::BoxBody,
    web::{Data, Payload},
};
use ratelimit_core::Limiter;
use ratelimit_http::{
    handler,
    registry::{Registry, UnknownPolicy},
};

use crate::{
    body::ResponseBody,
    check::check,
    count_body::count_body,
    framework::{ActixFramework, Config},
    middleware::new_config,
    rejection::{Rejection, respond},
};

/// The limit of one handler.
pub type HandlerLimit = handler::HandlerLimit<ActixFramework>;

/// The key by which a handler's requests are counted.
pub type HandlerKey = handler::HandlerKey<ActixFramework>;

/// A rejection as the function of `on_denied` in an expansion receives it.
pub type HandlerRejection<'a> = Rejection<'a>;

/// The response that the function of `on_denied` in an expansion returns.
pub type HandlerResponse = HttpResponse;

/// Calls the function of `on_denied` in an attribute.
pub fn respond_to_rejection<R: Responder>(
    make: impl Fn(&Rejection<'_>) -> R,
    rejection: &HandlerRejection<'_>,
) -> HandlerResponse {
    respond(make, rejection)
}

/// The response that a function of `on_denied` returns, as one type for all requests.
pub fn into_response(response: impl Responder, rejection: &Rejection<'_>) -> HttpResponse {
    let response = response.respond_to(rejection.request);
    response.map_into_boxed_body()
}

/// Checks a request, extracts the handler's arguments, calls it, and finishes its response.
///
/// actix-web polls the extractors of a handler together, so a check that comes first cannot be one of them.
pub async fn run<A, R>(
    limit: &'static HandlerLimit,
    request: HttpRequest,
    payload: Payload,
    handler: impl FnOnce(A) -> R,
) -> HttpResponse
where
    A: FromRequest,
    R: Future<Output: Responder>,
{
    let Ok((config, limiter)) = settings(limit, &request) else {
        return HttpResponse::InternalServerError().finish();
    };
    let mut payload = count_body(&config, &request, payload.into_inner());
    let admission = match check(config, &limiter, &request).await {
        Ok(admission) => admission,
        Err(response) => return response,
    };
    let extracted = A::from_request(&request, &mut payload).await;
    // The body counts as ended if the handler did not keep it.
    drop(payload);
    let mut response = match extracted {
        Ok(arguments) => {
            let response = handler(arguments).await.respond_to(&request);
            response.map_into_boxed_body()
        }
        Err(error) => HttpResponse::from_error(error),
    };
    let guard = admission.settle(&mut response);
    match guard {
        Some(_) => response.map_body(|_, body| BoxBody::new(ResponseBody::new(body, guard))),
        None => response,
    }
}

/// The settings of a handler's limit for a request, and its limiter.
fn settings(
    limit: &HandlerLimit,
    request: &HttpRequest,
) -> Result<(Arc<Config>, Limiter), UnknownPolicy> {
    let registry = || from_request::<Registry>(request);
    limit.config(from_request::<Limiter>(request), registry, new_config)
}

/// The value of type `T` in the request's extensions, or else in the application's data.
fn from_request<T: Clone + 'static>(request: &HttpRequest) -> Option<T> {
    let extension = request.extensions().get::<T>().cloned();
    extension
        .or_else(|| request.app_data::<T>().cloned())
        .or_else(|| Some(request.app_data::<Data<T>>()?.get_ref().clone()))
}
