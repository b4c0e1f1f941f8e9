//! Answers to requests that cannot be answered.

use axum::{
    body::Body,
    http::{
        HeaderValue, Response, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::IntoResponse,
};
use ratelimit_http::response::ProblemDetails;
use serde::Serialize;

/// Why a request is not answered, as `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: StatusCode,
    title: &'static str,
    detail: String,
}

#[derive(Serialize)]
struct Body9457<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
}

impl Refusal {
    pub(crate) fn new(
        status: StatusCode,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Refusal {
        Refusal {
            status,
            title,
            detail: detail.into(),
        }
    }

    /// 400, and what was expected.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "Bad request", detail)
    }

    /// 401, for admin calls without the right token.
    pub(crate) fn unauthorized() -> Refusal {
        Refusal::new(
            StatusCode::UNAUTHORIZED,
            "Not authorized",
            "this call needs the admin token as a bearer token",
        )
    }

    /// 422, for what can be read and still not be done.
    pub(crate) fn unprocessable(detail: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "Receipt refused", detail)
    }

    /// 410, for receipts of what is no more.
    pub(crate) fn gone(detail: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::GONE, "Receipt too old", detail)
    }

    /// 503, when the store does not answer and nothing else can.
    pub(crate) fn unavailable() -> Refusal {
        Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Rate limiting is unavailable",
            "the store did not answer",
        )
    }

    /// The same refusal, of one of several checks.
    pub(crate) fn of_check(mut self, place: usize) -> Refusal {
        self.detail = format!("checks[{place}]: {}", self.detail);
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let body = Body9457 {
            r#type: "about:blank",
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
        };
        let json = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = Response::new(Body::from(json));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_static(ProblemDetails::CONTENT_TYPE);
        headers.insert(CONTENT_TYPE, content_type);
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
