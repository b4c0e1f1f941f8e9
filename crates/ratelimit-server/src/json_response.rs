//! JSON responses.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE},
};
use serde::Serialize;

/// A response of the type `application/json`.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    let mut response = Response::new(to_json(body));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

pub(crate) fn to_json(body: &impl Serialize) -> Body {
    Body::from(serde_json::to_vec(body).expect("numbers and text can be written"))
}
