//! Middleware of all routes.

use axum::{
    body::{Body, HttpBody as _},
    extract::{Request, State},
    http::{
        HeaderValue, Response, StatusCode, Version,
        header::{CACHE_CONTROL, CONNECTION},
    },
    middleware::Next,
    response::IntoResponse as _,
};

use tracing::Instrument as _;

use crate::{
    access_log::{self, AccessRecord},
    api_error::ApiError,
    app::App,
    browser_guard,
    request_id::{self, X_REQUEST_ID},
    unread_body::UnreadBody,
};

/// The state of the middleware: the application, and whether only this machine can connect to the listener.
#[derive(Clone)]
pub(super) struct GuardState {
    pub(super) app: App,
    pub(super) is_loopback: bool,
}

/// Gives the request an id and a span, refuses calls of web pages, applies the request timeout, forbids caching unless
/// the route allows it, closes connections during a shutdown, counts the response and writes the access log.
pub(super) async fn guard(
    State(state): State<GuardState>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let id = request_id::ensure(request.headers_mut());
    let record = AccessRecord::start(&request);
    let span = access_log::span(&request);
    let mut response = respond(&state, request, next)
        .instrument(span.clone())
        .await;
    response.headers_mut().insert(X_REQUEST_ID, id);
    span.in_scope(|| record.finish(response.status()));
    response
}

async fn respond(state: &GuardState, request: Request, next: Next) -> Response<Body> {
    let GuardState { app, is_loopback } = state;
    let version = request.version();
    // HTTP/1 needs none of this: a body that is not read ends the connection after the response.
    let (request, unread) = if version == Version::HTTP_2 && !request.body().is_end_stream() {
        UnreadBody::hold(request)
    } else {
        (request, UnreadBody::default())
    };
    let mut response = match browser_guard::admit_request(app, &app.rules(), *is_loopback, &request)
    {
        Ok(()) => {
            let answered = tokio::time::timeout(app.bounds().request, next.run(request)).await;
            answered.unwrap_or_else(|_| too_slow())
        }
        Err(why) => {
            drop(request);
            why.into_response()
        }
    };
    unread.discard().await;
    let no_store = HeaderValue::from_static("no-store");
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(no_store);
    // The rest of an unread body would precede the next request on this connection.
    let is_cut_off = matches!(
        response.status(),
        StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE
    );
    if (app.is_closing() || is_cut_off) && version <= Version::HTTP_11 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

fn too_slow() -> Response<Body> {
    let status = StatusCode::REQUEST_TIMEOUT;
    ApiError::new(status, "Request timeout", "the request took too long").into_response()
}
