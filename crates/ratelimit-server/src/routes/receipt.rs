//! `refund`, `settle`, `release` and `renew` by receipt.

use std::num::NonZeroU64;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use ratelimit_core::{
    SettleError,
    store::{Receipt, Settlement, StoreError},
};
use serde::{Deserialize, Serialize};

use super::json;
use crate::{
    admin_auth,
    api_error::ApiError,
    app::App,
    check_request::{whole_number, whole_number_or_zero},
    config::ReloadableConfig,
    json_body::read_object,
};

/// Body of a refund. Without `permits` the whole charge is refunded.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefundRequest {
    receipt: String,
    #[serde(default, deserialize_with = "whole_number")]
    permits: Option<NonZeroU64>,
}

/// Body of a settlement: the actual cost.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettleRequest {
    receipt: String,
    #[serde(deserialize_with = "whole_number_or_zero")]
    actual: u64,
}

/// Body of a release or renewal.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotRequest {
    receipt: String,
}

#[derive(Serialize)]
struct SettlementResponse {
    changed: bool,
}

pub(super) async fn refund(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let rules = app.rules();
    admin_auth::admit_change(&app, &rules, &request)?;
    let body: RefundRequest = read_object(&app, request).await?;
    let receipt = app.receipt_tokens().verify(&rules, &body.receipt)?;
    let refund = body.permits.map_or(receipt.cost(), NonZeroU64::get);
    let Some(actual) = receipt.cost().checked_sub(refund) else {
        let too_many = format!("only {} permits were charged", receipt.cost());
        return Err(ApiError::unprocessable(too_many));
    };
    settle_receipt(&app, &receipt, actual).await
}

pub(super) async fn settle(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let rules = app.rules();
    admin_auth::admit_change(&app, &rules, &request)?;
    let body: SettleRequest = read_object(&app, request).await?;
    let receipt = app.receipt_tokens().verify(&rules, &body.receipt)?;
    settle_receipt(&app, &receipt, body.actual).await
}

/// Releases a slot. It needs no admin token: the receipt proves the ownership, and no budget is refunded.
pub(super) async fn release(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let receipt = slot_receipt(&app, &app.rules(), request).await?;
    settlement_response(app.limiter().release(&receipt).await)
}

pub(super) async fn renew(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let receipt = slot_receipt(&app, &app.rules(), request).await?;
    settlement_response(app.limiter().renew(&receipt).await)
}

async fn slot_receipt(
    app: &App,
    rules: &ReloadableConfig,
    request: Request,
) -> Result<Receipt, ApiError> {
    let body: SlotRequest = read_object(app, request).await?;
    app.receipt_tokens().verify(rules, &body.receipt)
}

async fn settle_receipt(
    app: &App,
    receipt: &Receipt,
    actual: u64,
) -> Result<Response<Body>, ApiError> {
    let policy = receipt.policy().name();
    let settled = match app.limiter().settle(receipt, actual).await {
        Ok(settled) => Ok(settled),
        Err(SettleError::Store(why)) => Err(why),
        Err(SettleError::AlreadySettled) => {
            let status = StatusCode::CONFLICT;
            let detail = "a receipt is good for one refund or settlement";
            return Err(ApiError::new(status, "Receipt used already", detail));
        }
        Err(SettleError::Forgotten) => {
            let detail = "the memory store no longer knows whether the receipt was used; raise --memory-keys";
            return Err(ApiError::gone(detail));
        }
        Err(_) => return Err(ApiError::gone("nothing of the charge is left")),
    };
    // Clients settle as often as they check, so the line is for debugging.
    let key = receipt.keys().primary().fingerprint();
    tracing::debug!(policy, %key, charged = receipt.cost(), actual, "settled");
    settlement_response(settled)
}

fn settlement_response(
    settled: Result<Settlement, StoreError>,
) -> Result<Response<Body>, ApiError> {
    match settled.map_err(|_| ApiError::unavailable())? {
        Settlement::LeaseLost => Err(ApiError::gone("the slot is not held any more")),
        settled => {
            let changed = settled == Settlement::Applied;
            Ok(json(StatusCode::OK, &SettlementResponse { changed }))
        }
    }
}
