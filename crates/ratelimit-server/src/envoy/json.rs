//! `POST /json`: the rate limit service for clients without gRPC, in the JSON form of its messages.

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_TYPE, ORIGIN},
    },
    response::{IntoResponse, Response},
    routing::post,
};
use prost_types::{Struct, Value as ProtoValue, value::Kind};
use ratelimit_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::{
        RateLimitDescriptor,
        rate_limit_descriptor::{Entry, RateLimitOverride},
    },
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, RateLimit},
    },
    r#type::v3::RateLimitUnit,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    app::App,
    envoy::service::RateLimitEndpoint,
    json_body::{BoundedVec, is_json, not_json, read_any},
};

/// The most descriptors of a request, as over gRPC.
const MAX_DESCRIPTORS: usize = 1_024;

/// The most entries of a descriptor.
const MAX_ENTRIES: usize = 64;

/// Memory for the answer to a descriptor.
const DESCRIPTOR_BYTES: usize = 1_024;

/// The route `/json`.
pub(crate) fn json_routes(endpoint: RateLimitEndpoint) -> Router<App> {
    Router::new().route("/json", post(ask)).with_state(endpoint)
}

async fn ask(
    State(endpoint): State<RateLimitEndpoint>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    // A page of another site can send every type but JSON. Clients other than browsers send any type, and no origin.
    if headers.contains_key(ORIGIN) && !is_json(&headers) {
        return not_json().into_response();
    }
    let app = endpoint.app();
    let mut body = match read_any(app, app.bounds().body, body).await {
        Ok(body) => body,
        Err(why) => return why.into_response(),
    };
    let request = serde_json::from_slice::<JsonRequest>(&body).ok();
    let Some(request) = request.and_then(JsonRequest::into_message) else {
        return bad_request();
    };
    if let Err(why) = body.hold_more(request.descriptors.len() * DESCRIPTOR_BYTES) {
        return why.into_response();
    }
    let Ok(response) = endpoint.answer(&request, None).await else {
        return bad_request();
    };
    let status = match response.overall_code() {
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Ok | Code::Unknown => StatusCode::OK,
    };
    let json = response_json(&response).to_string();
    let mut response = (status, [(CONTENT_TYPE, "application/json")], json).into_response();
    let memory = body.into_memory().until_sent();
    response.extensions_mut().insert(memory);
    response
}

fn bad_request() -> Response {
    (StatusCode::BAD_REQUEST, "Bad Request\n").into_response()
}

/// A request. Names are those of the messages, in either case; `null` is the default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRequest {
    domain: Option<String>,
    descriptors: Option<BoundedVec<JsonDescriptor, MAX_DESCRIPTORS>>,
    #[serde(alias = "hitsAddend")]
    hits_addend: Option<JsonInteger>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonDescriptor {
    entries: Option<BoundedVec<JsonEntry, MAX_ENTRIES>>,
    limit: Option<JsonLimit>,
    #[serde(alias = "hitsAddend")]
    hits_addend: Option<JsonInteger>,
    #[serde(alias = "isNegativeHits")]
    is_negative_hits: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonEntry {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonLimit {
    #[serde(alias = "requestsPerUnit")]
    requests_per_unit: Option<JsonInteger>,
    unit: Option<JsonUnit>,
}

/// An integer: a number, or a text with one.
#[derive(Deserialize)]
#[serde(untagged)]
enum JsonInteger {
    Number(u64),
    Text(String),
}

impl JsonInteger {
    fn get<T: TryFrom<u64>>(self) -> Option<T> {
        let number = match self {
            JsonInteger::Number(number) => number,
            JsonInteger::Text(text) => text.parse().ok()?,
        };
        T::try_from(number).ok()
    }
}

/// A unit: its name or its number.
#[derive(Deserialize)]
#[serde(untagged)]
enum JsonUnit {
    Number(i32),
    Name(String),
}

/// An integer that may be absent; `None` if it is out of range.
fn integer<T: TryFrom<u64> + Default>(integer: Option<JsonInteger>) -> Option<T> {
    integer.map_or(Some(T::default()), JsonInteger::get)
}

impl JsonRequest {
    fn into_message(self) -> Option<RateLimitRequest> {
        let descriptors = self
            .descriptors
            .map_or_else(Vec::new, |list| list.0)
            .into_iter();
        Some(RateLimitRequest {
            domain: self.domain.unwrap_or_default(),
            descriptors: descriptors
                .map(JsonDescriptor::into_message)
                .collect::<Option<_>>()?,
            hits_addend: integer(self.hits_addend)?,
        })
    }
}

impl JsonDescriptor {
    fn into_message(self) -> Option<RateLimitDescriptor> {
        let entries = self
            .entries
            .map_or_else(Vec::new, |list| list.0)
            .into_iter();
        let entries = entries.map(|entry| Entry {
            key: entry.key.unwrap_or_default().into(),
            value: entry.value.unwrap_or_default().into(),
        });
        Some(RateLimitDescriptor {
            entries: entries.collect(),
            limit: match self.limit {
                Some(limit) => Some(limit.into_message()?),
                None => None,
            },
            hits_addend: match self.hits_addend {
                Some(addend) => Some(addend.get()?),
                None => None,
            },
            is_negative_hits: self.is_negative_hits.unwrap_or_default(),
        })
    }
}

impl JsonLimit {
    fn into_message(self) -> Option<RateLimitOverride> {
        let unit = match self.unit {
            None => 0,
            Some(JsonUnit::Number(number)) => number,
            Some(JsonUnit::Name(name)) => RateLimitUnit::from_str_name(&name)?.into(),
        };
        Some(RateLimitOverride {
            requests_per_unit: integer(self.requests_per_unit)?,
            unit,
            unit_multiplier: None,
        })
    }
}

/// A response. Fields with their default value are left out.
fn response_json(response: &RateLimitResponse) -> Value {
    let statuses = response.statuses.iter().map(status_json);
    let headers = response.response_headers_to_add.iter().map(|header| {
        let value = String::from_utf8_lossy(&header.value);
        Value::from_iter([("key", header.key.as_str()), ("value", &value)])
    });
    let headers: Vec<Value> = headers.collect();
    let mut fields = Map::new();
    let code = response.overall_code().as_str_name();
    fields.insert("overallCode".to_owned(), code.into());
    fields.insert("statuses".to_owned(), statuses.collect());
    if !headers.is_empty() {
        fields.insert("responseHeadersToAdd".to_owned(), headers.into());
    }
    if let Some(metadata) = &response.dynamic_metadata {
        fields.insert("dynamicMetadata".to_owned(), struct_json(metadata));
    }
    Value::Object(fields)
}

fn status_json(status: &DescriptorStatus) -> Value {
    let mut fields = Map::new();
    fields.insert("code".to_owned(), status.code().as_str_name().into());
    if let Some(limit) = &status.current_limit {
        fields.insert("currentLimit".to_owned(), limit_json(limit));
    }
    if status.limit_remaining > 0 {
        fields.insert("limitRemaining".to_owned(), status.limit_remaining.into());
    }
    if let Some(reset) = &status.duration_until_reset {
        let reset = format!("{}s", reset.seconds);
        fields.insert("durationUntilReset".to_owned(), reset.into());
    }
    Value::Object(fields)
}

fn limit_json(limit: &RateLimit) -> Value {
    let mut fields = Map::new();
    if !limit.name.is_empty() {
        fields.insert("name".to_owned(), limit.name.clone().into());
    }
    if limit.requests_per_unit > 0 {
        fields.insert("requestsPerUnit".to_owned(), limit.requests_per_unit.into());
    }
    if limit.unit != 0 {
        fields.insert("unit".to_owned(), limit.unit().as_str_name().into());
    }
    Value::Object(fields)
}

fn struct_json(fields: &Struct) -> Value {
    let fields = fields.fields.iter();
    fields
        .map(|(name, value)| (name.clone(), value_json(value)))
        .collect()
}

fn value_json(value: &ProtoValue) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(is_true)) => (*is_true).into(),
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(value_json).collect(),
        Some(Kind::StructValue(fields)) => struct_json(fields),
    }
}
