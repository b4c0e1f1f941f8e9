//! Authorisation of the console's calls.

use axum::extract::Request;

use crate::{admin_auth, api_error::ApiError, app::App, config::Rules};

/// Checks a call that reads.
#[expect(dead_code, reason = "the calls come with the console")]
pub(super) fn admit_read(app: &App, rules: &Rules, request: &Request) -> Result<(), ApiError> {
    admin_auth::admit_request(app, rules, request)
}

/// Checks a call that changes something.
pub(super) fn admit_change(app: &App, rules: &Rules, request: &Request) -> Result<(), ApiError> {
    admin_auth::admit_request(app, rules, request)
}
