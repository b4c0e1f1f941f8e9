//! `check`: charges budgets, one or several in a request.

use std::time::{Duration, Instant};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use futures_util::{StreamExt as _, stream};
use ratelimit_core::{
    Reservation, Verdict,
    store::{JointHit, MAX_JOINT_HITS},
};
use serde::{Deserialize, Serialize};

use super::{json, to_json};
use crate::{
    api_error::ApiError,
    app::App,
    check_request::{CheckRequest, Item},
    check_response::{self, CheckResponse},
    config::ReloadableConfig,
    json_body::{BoundedVec, parse, read},
    json_object::Object,
    query::Query,
};

const MAX_CHECKS: usize = 1_000;
/// Checks of one request that are decided concurrently. This is an eighth of the calls that a Redis
/// store has in flight, so one request cannot starve the others.
const MAX_CONCURRENT_CHECKS: usize = 128;
/// Memory for one of several checks, with its result.
const CHECK_BYTES: usize = 1_024;

/// Body of a request with several checks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchRequest {
    checks: BoundedVec<Object<Item>, MAX_CHECKS>,
    /// Whether all checks are charged or none.
    #[serde(default, rename = "together")]
    is_joint: Option<bool>,
}

/// Body of the response to several checks.
#[derive(Serialize)]
struct BatchResponse<'a> {
    /// Whether all checks passed, where they were decided together.
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<bool>,
    results: Vec<CheckResponse<'a>>,
}

/// `GET`: one check in the query.
pub(super) async fn get(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let (parts, _) = request.into_parts();
    let rules = app.rules();
    let mut check_request = CheckRequest::from_query(&app, &rules, &parts, &["receipt"])?;
    check_request.wants_receipt = wants_receipt(Query::of(&parts))?;
    Ok(respond(&app, &rules, &check_request).await)
}

/// `POST`: one check in the body, or several as `{"checks":[...]}`, each by itself or all together.
pub(super) async fn post(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let (parts, body) = request.into_parts();
    let rules = app.rules();
    let mut bytes = read(&app, &parts.headers, body).await?;
    app.check_parameters(&parts, &[])?;
    match parse(&bytes) {
        Ok(Object(item)) => {
            let check_request = CheckRequest::from_item(&app, &rules, &parts, item)?;
            return Ok(respond(&app, &rules, &check_request).await);
        }
        // One check has no field `checks`.
        Err(_) if is_batch(&bytes)? => {}
        Err(why) => return Err(why),
    }
    let Object(BatchRequest { checks, is_joint }) = parse(&bytes)?;
    let BoundedVec(checks) = checks;
    let is_joint = is_joint == Some(true);
    let max = if is_joint { MAX_JOINT_HITS } else { MAX_CHECKS };
    if checks.len() > max {
        let too_many = format!("at most {max} checks in one request");
        return Err(ApiError::bad_request(too_many));
    }
    // Nothing is charged yet.
    bytes.hold_more(checks.len() * CHECK_BYTES)?;
    // All checks are validated before the first one charges.
    let read = checks.into_iter().enumerate().map(|(index, Object(item))| {
        CheckRequest::from_item(&app, &rules, &parts, item).map_err(|why| why.in_check(index))
    });
    let check_requests: Vec<CheckRequest> = read.collect::<Result<_, _>>()?;
    let memory = bytes.into_memory().until_sent();
    let response = if is_joint {
        check_joint(&app, &check_requests).await
    } else {
        Ok(check_each(&app, &rules, check_requests).await)
    };
    response.map(|mut response| {
        response.extensions_mut().insert(memory);
        response
    })
}

/// Charges each check by itself.
async fn check_each(
    app: &App,
    rules: &ReloadableConfig,
    mut check_requests: Vec<CheckRequest>,
) -> Response<Body> {
    let deadline = Instant::now() + batch_time(app.bounds().decision, check_requests.len());
    for check_request in &mut check_requests {
        check_request.deadline = Some(deadline);
    }
    // Futures are made when it is their turn: each takes some kilobytes.
    let checks = stream::iter(0..check_requests.len());
    let charged = checks.map(|index| charge(app, &check_requests[index]));
    let charged = charged.buffered(MAX_CONCURRENT_CHECKS);
    let charged: Vec<ChargedCheck> = charged.collect().await;
    let results = charged.into_iter();
    let results: Vec<CheckResult> = results
        .map(|charged| charged.into_result(app, rules))
        .collect();
    let responses = check_requests.iter().zip(&results);
    let responses = responses.map(|(check_request, result)| result.response(check_request));
    let body = BatchResponse {
        allowed: None,
        results: responses.collect(),
    };
    json(StatusCode::OK, &body)
}

/// The time for Redis to decide `count` checks of one request. Afterwards the failure mode decides the others.
///
/// Eight rounds of a thousand checks would otherwise wait eight times for a server that is silent.
fn batch_time(decision: Duration, count: usize) -> Duration {
    let parts = u32::try_from(count).unwrap_or(u32::MAX);
    decision.saturating_add(decision.saturating_mul(parts) / 256)
}

/// Charges all checks, or none. A check that passes is reported as allowed although another one was denied.
async fn check_joint(
    app: &App,
    check_requests: &[CheckRequest],
) -> Result<Response<Body>, ApiError> {
    let wants_receipt = |check_request: &CheckRequest| check_request.wants_receipt;
    if let Some(index) = check_requests.iter().position(wants_receipt) {
        let why = ApiError::bad_request("checks that are decided together give no receipts");
        return Err(why.in_check(index));
    }
    let hits = check_requests.iter().map(CheckRequest::hit);
    let members: Vec<JointHit<'_>> = hits.map(JointHit::new).collect();
    let check = app.limiter().check_joint(&members);
    let joint = check
        .map_err(|why| ApiError::bad_request(why.to_string()))?
        .await;
    let verdicts: Vec<&Verdict> = joint.members.iter().map(|member| &member.verdict).collect();
    let results = check_requests.iter().zip(&verdicts);
    let results =
        results.map(|(check_request, verdict)| CheckResponse::new(check_request, verdict));
    let body = to_json(&BatchResponse {
        allowed: Some(joint.is_allowed),
        results: results.collect(),
    });
    Ok(check_response::respond_joint(
        joint.is_allowed,
        &verdicts,
        body,
    ))
}

/// A verdict, and the reservation if the client wants a receipt.
///
/// Dropping the reservation releases its slot. This happens when a client disconnects before all its
/// checks are decided.
struct ChargedCheck {
    verdict: Verdict,
    reservation: Option<Reservation>,
}

impl ChargedCheck {
    /// Turns the reservation into a receipt. The caller must not await before it sends the receipt.
    fn into_result(self, app: &App, rules: &ReloadableConfig) -> CheckResult {
        let receipt = self.reservation.map(Reservation::into_receipt);
        CheckResult {
            verdict: self.verdict,
            receipt: receipt.map(|receipt| app.receipt_tokens().sign(rules, &receipt)),
        }
    }
}

/// A verdict, and the signed receipt if the client wants one.
struct CheckResult {
    verdict: Verdict,
    receipt: Option<String>,
}

impl CheckResult {
    fn response<'a>(&'a self, check_request: &'a CheckRequest) -> CheckResponse<'a> {
        CheckResponse::new(check_request, &self.verdict).with_receipt(self.receipt.as_deref())
    }
}

async fn respond(
    app: &App,
    rules: &ReloadableConfig,
    check_request: &CheckRequest,
) -> Response<Body> {
    let charged = charge(app, check_request).await;
    let result = charged.into_result(app, rules);
    let verdict = &result.verdict;
    let body = to_json(&result.response(check_request));
    let status = check_response::status(verdict);
    check_response::respond(app.headers(), &check_request.policy, verdict, status, body)
}

/// Charges the budget, with a reservation if the client wants a receipt.
async fn charge(app: &App, check_request: &CheckRequest) -> ChargedCheck {
    if !check_request.wants_receipt {
        return ChargedCheck {
            verdict: check(app, check_request).await,
            reservation: None,
        };
    }
    let (verdict, reservation) = app.limiter().reserve(check_request.hit()).await;
    ChargedCheck {
        verdict,
        reservation,
    }
}

/// Charges the budget. A slot of a concurrency limit is held until its lease expires.
pub(super) async fn check(app: &App, check_request: &CheckRequest) -> Verdict {
    app.limiter().check_hit(check_request.hit()).await
}

fn wants_receipt(query: Query<'_>) -> Result<bool, ApiError> {
    match query.one("receipt")?.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(ApiError::bad_request("receipt must be true or false")),
    }
}

/// Whether a body has the field `checks`.
fn is_batch(bytes: &[u8]) -> Result<bool, ApiError> {
    #[derive(Deserialize)]
    struct Form {
        #[serde(default)]
        checks: Option<serde::de::IgnoredAny>,
    }
    parse::<Object<Form>>(bytes).map(|Object(form)| form.checks.is_some())
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        sync::{
            Arc, Mutex,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use axum::http::header::CONTENT_TYPE;
    use ratelimit_core::{
        KeySet, Limiter, MemoryStore, Policy,
        store::{Charged, Hit, Store, StoreFuture},
    };
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        config::{Config, Settings},
        metrics::recorder,
        routes::CHECK_PATH,
    };

    /// A store that answers some polls later, counts the hits that it has not answered yet, and keeps their deadlines.
    #[derive(Clone, Debug, Default)]
    struct Slow {
        store: MemoryStore,
        in_flight: Arc<AtomicUsize>,
        peak: Arc<AtomicUsize>,
        deadlines: Arc<Mutex<HashSet<Option<Instant>>>>,
    }

    impl Store for Slow {
        fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
            let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            self.peak.fetch_max(in_flight, Ordering::SeqCst);
            self.deadlines
                .lock()
                .expect("no panic")
                .insert(hit.deadline);
            let (decided, counter) = (self.store.hit(hit), Arc::clone(&self.in_flight));
            StoreFuture::pending(async move {
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
                counter.fetch_sub(1, Ordering::SeqCst);
                decided.await
            })
        }

        fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
            self.store.reset(policy, keys)
        }
    }

    #[tokio::test]
    async fn one_request_has_at_most_128_hits_in_flight_and_its_answers_in_order() {
        let store = Slow::default();
        let config = Config::load(&Settings::default()).expect("the defaults");
        let metrics = recorder(&config.application).handle();
        let app = App::new(&config, Limiter::new(store.clone()), config.listen, metrics);
        let checks: Vec<String> = (0..MAX_CHECKS)
            .map(|number| format!(r#"{{"key":"user-{number}"}}"#))
            .collect();
        let request = Request::post(CHECK_PATH)
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(format!(
                r#"{{"checks":[{}]}}"#,
                checks.join(",")
            )));

        let started = Instant::now();
        let response = app.router().oneshot(request.expect("a request")).await;

        let response = response.expect("an answer");
        assert_eq!(response.status(), 200);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        let body: serde_json::Value = serde_json::from_slice(&body.expect("a body")).expect("JSON");
        let keys: Vec<_> = body["results"]
            .as_array()
            .expect("results")
            .iter()
            .collect();
        assert_eq!(keys.len(), MAX_CHECKS);
        for (number, answer) in keys.into_iter().enumerate() {
            assert_eq!(answer["key"], format!("user-{number}"));
        }
        assert_eq!(store.peak.load(Ordering::SeqCst), MAX_CONCURRENT_CHECKS);
        let deadlines = store.deadlines.lock().expect("no panic");
        let deadlines: Vec<Option<Instant>> = deadlines.iter().copied().collect();
        let [Some(deadline)] = deadlines[..] else {
            panic!("{deadlines:?}");
        };
        // 100 ms x (1 + 1,000 / 256).
        let time = Duration::from_micros(490_625);
        assert!((started + time..=Instant::now() + time).contains(&deadline));
    }
}
