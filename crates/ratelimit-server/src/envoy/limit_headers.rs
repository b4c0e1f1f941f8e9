//! The header fields of a limit in answers to Envoy.

use ratelimit_envoy::proto::envoy::{
    config::core::v3::HeaderValue,
    service::ratelimit::v3::{RateLimitResponse, rate_limit_response::Code},
};

use crate::config::LimitHeaderNames;

/// Adds the fields of the status with the fewest units left; a status that is over its limit goes before others.
///
/// Names come from the settings and values are numbers, so no text of a client gets into a header.
pub(super) fn add_limit_headers(response: &mut RateLimitResponse, names: &LimitHeaderNames) {
    let limited = response.statuses.iter().filter_map(|status| {
        let limit = status.current_limit.as_ref()?;
        Some((status, limit))
    });
    let tightest = limited.min_by_key(|(status, _)| {
        let is_over = status.code() == Code::OverLimit;
        (status.limit_remaining, !is_over)
    });
    let Some((status, limit)) = tightest else {
        return;
    };
    let reset = status.duration_until_reset.as_ref();
    let values = [
        limit.requests_per_unit.to_string(),
        status.limit_remaining.to_string(),
        reset.map_or(0, |reset| reset.seconds).to_string(),
    ];
    response.response_headers_to_add = names
        .0
        .iter()
        .zip(values)
        .map(|(name, value)| HeaderValue {
            key: name.clone(),
            value: value.into(),
            ..HeaderValue::default()
        })
        .collect();
}
