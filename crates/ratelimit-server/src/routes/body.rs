//! Request bodies.

use axum::{
    body::{self, Body, HttpBody as _},
    http::StatusCode,
};
use bytes::Bytes;
use serde::Deserialize;

use crate::{api_error::ApiError, app::App};

/// Reads a body up to the maximum size; a longer one is a 413.
pub(super) async fn read(app: &App, body: Body) -> Result<Bytes, ApiError> {
    let most = app.bounds().body;
    let too_large = || {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        ApiError::new(status, "Body too large", format!("at most {most} bytes"))
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    body::to_bytes(body, most).await.map_err(|_| too_large())
}

pub(super) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|why| ApiError::bad_request(format!("the body: {why}")))
}
