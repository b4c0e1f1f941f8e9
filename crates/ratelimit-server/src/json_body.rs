//! JSON bodies of requests and responses.

use std::{fmt, marker::PhantomData, ops::Deref};

use axum::{
    body::{Body, HttpBody as _},
    extract::Request,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, IgnoredAny, SeqAccess, Visitor},
};

use crate::{
    api_error::ApiError,
    app::App,
    json_object::Object,
    memory_budget::{HeldMemory, ReceivedBytes},
};

/// The longest detail of an error about a body, in characters. It may quote the body.
const MAX_DETAIL: usize = 300;

/// A body, and its part of the memory budget.
#[derive(Debug)]
pub(crate) struct BodyBytes {
    bytes: Bytes,
    memory: HeldMemory,
}

impl BodyBytes {
    /// Holds memory for what a request of this body makes.
    pub(crate) fn hold_more(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.memory.grow(bytes).map_err(|_| overloaded())
    }

    /// Drops the bytes, and keeps the memory.
    pub(crate) fn into_memory(self) -> HeldMemory {
        self.memory
    }
}

impl Deref for BodyBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a JSON body up to the maximum size of the server. See [`read_up_to`].
pub(crate) async fn read(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> Result<BodyBytes, ApiError> {
    read_up_to(app, app.bounds().body, headers, body).await
}

/// Reads a JSON body of at most `most` bytes. See [`read_any`].
///
/// A form of another site can send every type but JSON.
pub(crate) async fn read_up_to(
    app: &App,
    most: usize,
    headers: &HeaderMap,
    body: Body,
) -> Result<BodyBytes, ApiError> {
    if !is_json(headers) {
        return Err(not_json());
    }
    read_any(app, most, body).await
}

/// Reads a body of at most `most` bytes. A longer one is a 413, one of another type a 415, one that breaks off or is
/// malformed a 400, and one that does not fit the memory budget a 503.
///
/// Bytes take memory of the budget when they arrive, so that a peer which announces many and sends none takes none.
pub(crate) async fn read_any(
    app: &App,
    most: usize,
    mut body: Body,
) -> Result<BodyBytes, ApiError> {
    let too_large = || {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        ApiError::new(status, "Body too large", format!("at most {most} bytes"))
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let mut memory = app.memory_budget().hold();
    let mut received = ReceivedBytes::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the body could not be read"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if data.len() > most - received.len() {
            return Err(too_large());
        }
        memory.grow(data.len()).map_err(|_| overloaded())?;
        if received.is_empty() && body.is_end_stream() {
            return Ok(BodyBytes {
                bytes: data,
                memory,
            });
        }
        received.push(&data);
    }
    let bytes = received.take();
    Ok(BodyBytes { bytes, memory })
}

/// 503: the memory budget is exhausted.
fn overloaded() -> ApiError {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let detail = "too many bytes of requests are in flight; send the request again later";
    ApiError::new(status, "Overloaded", detail)
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
    serde_json::from_slice(bytes).map_err(|why| {
        let why = format!("the body: {why}");
        ApiError::bad_request(match why.char_indices().nth(MAX_DETAIL) {
            Some((end, _)) => format!("{} ...", &why[..end]),
            None => why,
        })
    })
}

/// A list of at most `MAX` items. A longer one is an error at its next item, so that it is never held.
#[derive(Debug)]
pub(crate) struct BoundedVec<T, const MAX: usize>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedVec<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<BoundedVec<T, MAX>, D::Error> {
        from.deserialize_seq(BoundedVisitor(PhantomData))
    }
}

struct BoundedVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedVisitor<T, MAX> {
    type Value = BoundedVec<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<BoundedVec<T, MAX>, A::Error> {
        let mut list = Vec::new();
        while list.len() < MAX {
            match items.next_element()? {
                Some(item) => list.push(item),
                None => return Ok(BoundedVec(list)),
            }
        }
        match items.next_element::<IgnoredAny>()? {
            Some(_) => Err(A::Error::invalid_length(MAX + 1, &self)),
            None => Ok(BoundedVec(list)),
        }
    }
}
