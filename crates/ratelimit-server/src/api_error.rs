//! Errors of the REST API.

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

const UNKNOWN_POLICY: &str = "Unknown policy";

/// An error response with the body `application/problem+json` (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    title: &'static str,
    detail: String,
    /// The index of the policy that is wrong, in a request with several.
    policy: Option<usize>,
    /// Seconds to wait before the next attempt.
    retry_after: Option<u64>,
}

#[derive(Serialize)]
struct ProblemBody<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<usize>,
}

impl ApiError {
    pub(crate) fn new(
        status: StatusCode,
        title: &'static str,
        detail: impl Into<String>,
    ) -> ApiError {
        ApiError {
            status,
            title,
            detail: detail.into(),
            policy: None,
            retry_after: None,
        }
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// 400. `detail` says what was expected.
    pub(crate) fn bad_request(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "Bad request", detail)
    }

    /// 400: no policy has that name.
    pub(crate) fn unknown_policy(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, UNKNOWN_POLICY, detail)
    }

    /// For forward-auth: an unknown policy is a 404, which a proxy can tell from a request that is at fault.
    pub(crate) fn unknown_policy_as_404(mut self) -> ApiError {
        if self.title == UNKNOWN_POLICY {
            self.status = StatusCode::NOT_FOUND;
        }
        self
    }

    /// 401: an admin call without the right token.
    pub(crate) fn unauthorized() -> ApiError {
        ApiError::new(
            StatusCode::UNAUTHORIZED,
            "Not authorized",
            "this call needs the admin token as a bearer token",
        )
    }

    /// 404: there is nothing under this path.
    pub(crate) fn not_found() -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "Not found", "see /openapi.json")
    }

    /// 403: a change by the console, which only reads.
    pub(crate) fn read_only() -> ApiError {
        let detail = "the console only reads; --console write lets it reset and reload";
        ApiError::new(StatusCode::FORBIDDEN, "Read only", detail)
    }

    /// 401: another token than the admin token.
    pub(crate) fn wrong_token() -> ApiError {
        let detail = "this is not the admin token";
        ApiError::new(StatusCode::UNAUTHORIZED, "Wrong token", detail)
    }

    /// 429: too many wrong tokens.
    pub(crate) fn too_many_tokens(retry_after_secs: u64) -> ApiError {
        let detail = "too many wrong tokens came from this address; wait, sign in from another address such as that of a \
                      tunnel, or send the right token as a bearer token, which is accepted meanwhile";
        ApiError {
            retry_after: Some(retry_after_secs),
            ..ApiError::new(StatusCode::TOO_MANY_REQUESTS, "Too many attempts", detail)
        }
    }

    /// 503: another call of its kind is being worked on, and there is one at a time.
    #[cfg(feature = "console")]
    pub(crate) fn busy(detail: &'static str) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "Busy", detail)
    }

    /// 422: a well-formed request that cannot be executed.
    pub(crate) fn unprocessable(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Receipt refused", detail)
    }

    /// 410: the charge of the receipt has expired.
    pub(crate) fn gone(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::GONE, "Receipt too old", detail)
    }

    /// 503: the store did not answer a reset, which applies to the local budget nevertheless.
    pub(crate) fn reset_locally() -> ApiError {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Reset in this server only",
            "the store did not answer, so its budget is as it was; the budget of the local failure mode \
             in this server was reset; send the call again when the store answers",
        )
    }

    /// 503: the store did not answer, and no failure mode applies.
    pub(crate) fn unavailable() -> ApiError {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Rate limiting is unavailable",
            "the store did not answer",
        )
    }

    /// Names the policy of the request that caused the error, by its index.
    #[cfg(feature = "console")]
    pub(crate) fn in_policy(mut self, index: usize) -> ApiError {
        self.policy = Some(index);
        self
    }

    /// Names the check of a batch that caused the error.
    pub(crate) fn in_check(mut self, index: usize) -> ApiError {
        self.detail = format!("checks[{index}]: {}", self.detail);
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let body = ProblemBody {
            r#type: "about:blank",
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            policy: self.policy,
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
        let is_unavailable = self.status == StatusCode::SERVICE_UNAVAILABLE;
        if let Some(seconds) = self.retry_after.or(is_unavailable.then_some(1)) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
