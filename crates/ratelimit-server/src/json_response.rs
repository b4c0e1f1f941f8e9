//! JSON responses.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE},
};
use serde::Serialize;

/// The response to a check, with a key of a usual length, fits in.
const USUAL_BYTES: usize = 256;

/// A response of the type `application/json`.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    let mut response = Response::new(to_json(body));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

pub(crate) fn to_json(body: &impl Serialize) -> Body {
    let mut json = Vec::with_capacity(USUAL_BYTES);
    serde_json::to_writer(&mut json, body).expect("numbers and text can be written");
    Body::from(json)
}
