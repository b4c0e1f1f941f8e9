//! What holds for every request.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{
        HeaderValue, Response, StatusCode, Version,
        header::{CACHE_CONTROL, CONNECTION},
    },
    middleware::Next,
    response::IntoResponse as _,
};

use crate::{app::App, refusal::Refusal};

/// Bounds the time of a request, keeps answers out of caches, and sends clients away when it ends.
pub(super) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response<Body> {
    let version = request.version();
    let answered = tokio::time::timeout(app.bounds().request, next.run(request)).await;
    let mut response = answered.unwrap_or_else(|_| too_slow());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if app.is_draining() && version <= Version::HTTP_11 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn too_slow() -> Response<Body> {
    let status = StatusCode::REQUEST_TIMEOUT;
    let mut response =
        Refusal::new(status, "Request timeout", "the request took too long").into_response();
    // What is still to come of the body would be read as the next request.
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
