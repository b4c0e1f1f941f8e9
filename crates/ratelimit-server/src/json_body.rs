//! JSON bodies of requests and responses.

use axum::{
    body::{Body, HttpBody as _},
    extract::Request,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Collected, LengthLimitError, Limited};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{api_error::ApiError, app::App, json_object::Object};

/// Reads a JSON body up to the maximum size of the server. See [`read_up_to`].
pub(crate) async fn read(app: &App, headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    read_up_to(app.bounds().body, headers, body).await
}

/// Reads a JSON body of at most `most` bytes. A longer one is a 413, one of another type a 415, and one that breaks off or
/// is malformed a 400.
///
/// A form of another site can send every type but JSON.
pub(crate) async fn read_up_to(
    most: usize,
    headers: &HeaderMap,
    body: Body,
) -> Result<Bytes, ApiError> {
    if !is_json(headers) {
        return Err(not_json());
    }
    let too_large = || {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        ApiError::new(status, "Body too large", format!("at most {most} bytes"))
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let read = Limited::new(body, most).collect().await;
    let bytes = read.map(Collected::to_bytes);
    bytes.map_err(|why| match why.downcast_ref::<LengthLimitError>() {
        Some(_) => too_large(),
        None => ApiError::bad_request("the body could not be read"),
    })
}

/// Reads a JSON object.
pub(crate) async fn read_object<T: DeserializeOwned>(
    app: &App,
    request: Request,
) -> Result<T, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = read(app, &parts.headers, body).await?;
    app.check_parameters(&parts, &[])?;
    parse(&bytes).map(|Object(object)| object)
}

/// 415: the body has another type than JSON.
pub(crate) fn not_json() -> ApiError {
    ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "Unsupported media type",
        "the body must be sent with Content-Type: application/json",
    )
}

/// Whether the one `Content-Type` is JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (types.next(), types.next()) else {
        return false;
    };
    let essence = value.as_bytes().split(|byte| *byte == b';').next();
    let essence = essence.unwrap_or_default().trim_ascii();
    essence.eq_ignore_ascii_case(b"application/json")
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|why| ApiError::bad_request(format!("the body: {why}")))
}
