//! What becomes of a charge: given back, settled, its slot released or renewed.

use std::num::NonZeroU64;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use ratelimit_core::{Receipt, SettleError, Settlement, StoreError};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{body, json, object::Object};
use crate::{
    access,
    app::App,
    config::Rules,
    question::{whole_number, whole_number_or_zero},
    refusal::Refusal,
};

/// Gives permits back, all unless it says how many.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refund {
    receipt: String,
    #[serde(default, deserialize_with = "whole_number")]
    permits: Option<NonZeroU64>,
}

/// Says what a check came to cost.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settle {
    receipt: String,
    #[serde(deserialize_with = "whole_number_or_zero")]
    actual: u64,
}

/// Names the slot of a check.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Slot {
    receipt: String,
}

#[derive(Serialize)]
struct Changed {
    changed: bool,
}

pub(super) async fn refund(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let rules = app.rules();
    access::admit_request(&app, &rules, &request)?;
    let asked: Refund = parsed(&app, request).await?;
    let receipt = app.seal().open(&rules, &asked.receipt)?;
    let back = asked.permits.map_or(receipt.cost(), NonZeroU64::get);
    let Some(actual) = receipt.cost().checked_sub(back) else {
        let too_many = format!("only {} permits were charged", receipt.cost());
        return Err(Refusal::unprocessable(too_many));
    };
    redeem(&app, &receipt, actual).await
}

pub(super) async fn settle(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let rules = app.rules();
    access::admit_request(&app, &rules, &request)?;
    let asked: Settle = parsed(&app, request).await?;
    let receipt = app.seal().open(&rules, &asked.receipt)?;
    redeem(&app, &receipt, asked.actual).await
}

/// Needs no admin token: the receipt proves whose slot it is, and nothing that was spent comes back.
pub(super) async fn release(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let receipt = slot(&app, &app.rules(), request).await?;
    answer(app.limiter().release(&receipt).await)
}

pub(super) async fn renew(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let receipt = slot(&app, &app.rules(), request).await?;
    answer(app.limiter().renew(&receipt).await)
}

async fn parsed<T: DeserializeOwned>(app: &App, request: Request) -> Result<T, Refusal> {
    let bytes = body::read(app, request.into_body()).await?;
    body::parse(&bytes).map(|Object(asked)| asked)
}

async fn slot(app: &App, rules: &Rules, request: Request) -> Result<Receipt, Refusal> {
    let asked: Slot = parsed(app, request).await?;
    app.seal().open(rules, &asked.receipt)
}

async fn redeem(app: &App, receipt: &Receipt, actual: u64) -> Result<Response<Body>, Refusal> {
    let policy = receipt.policy().name();
    let settled = match app.limiter().settle(receipt, actual).await {
        Ok(settled) => Ok(settled),
        Err(SettleError::Store(why)) => Err(why),
        Err(SettleError::AlreadySettled) => {
            let status = StatusCode::CONFLICT;
            let detail = "a receipt is good for one refund or settlement";
            return Err(Refusal::new(status, "Receipt used already", detail));
        }
        Err(_) => return Err(Refusal::gone("nothing of the charge is left")),
    };
    tracing::info!(policy, charged = receipt.cost(), actual, "settled");
    answer(settled)
}

fn answer(settled: Result<Settlement, StoreError>) -> Result<Response<Body>, Refusal> {
    match settled.map_err(|_| Refusal::unavailable())? {
        Settlement::LeaseLost => Err(Refusal::gone("the slot is not held any more")),
        settled => {
            let changed = settled == Settlement::Applied;
            Ok(json(StatusCode::OK, &Changed { changed }))
        }
    }
}
