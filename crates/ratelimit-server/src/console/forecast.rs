//! When more permits of a key pass.

use std::{collections::BTreeSet, time::Instant};

use axum::{
    Extension, Router,
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
    routing::get,
};
use futures_util::future::join_all;
use ratelimit_core::{Decision, Limit, Policy, Throttle, Verdict};
use serde::Serialize;

use crate::{
    admin_auth::Caller, api_error::ApiError, app::App, audit::Audit, check_request::CheckRequest,
    check_response::decided_by, json_response::json, micros::micros,
};

/// The maximum number of points.
const MAX_POINTS: usize = 24;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/console/api/forecast", get(forecast))
}

/// How many permits pass at once, and when, if no other check spends meanwhile.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Forecast {
    /// The most permits that can ever pass at once.
    limit: u64,
    /// The time of the last point, or a period of the policy if everything passes now.
    up_to_micros: u64,
    points: Vec<Point>,
    /// `local` or `none` if the store did not decide. There are no points then if nothing decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'static str>,
}

/// A number of permits, and the time after which they pass; `None` is never.
#[derive(Serialize)]
struct Point(u64, Option<u64>);

/// Asks the store about several numbers of permits by dry runs, which spend nothing.
async fn forecast(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let rules = app.rules();
    let mut audit = Audit::new("forecast", caller, &request);
    let (parts, _) = request.into_parts();
    let check_request = CheckRequest::explained(&app, &rules, &parts)?;
    audit.about(&check_request.policy, &check_request.keys);
    let policy = &check_request.policy;
    let limit = max_permits(policy);
    let permits = numbers(limit, check_request.permits.get());
    let verdicts = ask_until_agreed(decided_by, |is_local| {
        // The dry runs start together, so that a Redis store sends them as one batch.
        join_all(permits.iter().map(|permits| {
            let hit = check_request.hit().cost(*permits).dry_run();
            // Redis cannot answer before a deadline that has passed.
            let hit = if is_local {
                hit.deadline(Instant::now())
            } else {
                hit
            };
            app.limiter().check_hit(hit)
        }))
    });
    let verdicts = verdicts.await;
    audit.succeed();
    let points = points(&permits, &verdicts);
    let last = points.iter().filter_map(|point| point.1).max();
    let longest = policy.limits().iter().map(Limit::period).max();
    let forecast = Forecast {
        limit,
        up_to_micros: last
            .filter(|last| *last > 0)
            .unwrap_or_else(|| micros(longest.unwrap_or_default())),
        points,
        store: verdicts.first().map_or(Some("none"), decided_by),
    };
    Ok(json(StatusCode::OK, &forecast))
}

/// Verdicts with one decider. Some dry runs can time out while others are answered, and budgets of two stores make no
/// curve: all are asked again, and then locally.
async fn ask_until_agreed<V, F: Future<Output = Vec<V>>>(
    decider: impl Fn(&V) -> Option<&'static str>,
    mut ask: impl FnMut(bool) -> F,
) -> Vec<V> {
    for is_local in [false, false, true] {
        let verdicts = ask(is_local).await;
        let deciders: BTreeSet<_> = verdicts.iter().map(&decider).collect();
        if deciders.len() <= 1 {
            return verdicts;
        }
    }
    Vec::new()
}

/// The points of the verdicts, all seen from the first one. No points if the failure mode decided without a budget.
fn points(permits: &[u64], verdicts: &[Verdict]) -> Vec<Point> {
    let decisions: Option<Vec<&Decision>> = verdicts.iter().map(Verdict::decision).collect();
    let Some(decisions) = decisions else {
        return Vec::new();
    };
    let Some(start) = decisions.iter().map(|decision| decision.now).min() else {
        return Vec::new();
    };
    let after = |decision: &Decision| {
        let wait = decision.retry_after()?;
        let later = decision.now.since(start);
        Some(micros(if wait.is_zero() { wait } else { wait + later }))
    };
    let points = permits.iter().zip(decisions);
    points
        .map(|(permits, decision)| Point(*permits, after(decision)))
        .collect()
}

/// The most permits that can ever pass at once: the smallest limit with its headroom. A concurrency limit takes one slot
/// whatever the cost.
fn max_permits(policy: &Policy) -> u64 {
    let percent = match policy.throttle() {
        Throttle::Soft { percent } | Throttle::Elastic { percent, .. } => *percent,
        _ => 0,
    };
    let counting = policy.limits().iter().filter(|limit| limit.counts_units());
    let ceilings = counting.map(|limit| {
        let capacity = u128::from(limit.capacity());
        capacity + capacity * u128::from(percent) / 100
    });
    let smallest = ceilings.min().unwrap_or(1);
    u64::try_from(smallest).unwrap_or(u64::MAX)
}

/// Numbers from 1 to `limit`, evenly spread, with the number of one check.
fn numbers(limit: u64, cost: u64) -> Vec<u64> {
    // One of the points is that of a check.
    let steps = limit.min(MAX_POINTS as u64 - 1);
    let number = |step: u64| {
        let number = u128::from(limit) * u128::from(step) / u128::from(steps);
        u64::try_from(number).unwrap_or(u64::MAX).max(1)
    };
    // With more steps than 1 the first would be far from 1.
    let spread = (2..=steps).map(number).chain([1, limit, cost]);
    let numbers: BTreeSet<u64> = spread.collect();
    numbers.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn verdicts_of_two_stores_are_asked_for_again_and_then_locally() {
        const MIXED: [Option<&str>; 2] = [None, Some("local")];
        for (answers, expected, asked) in [
            ([[None; 2], MIXED, MIXED], vec![None; 2], 1),
            ([MIXED, [None; 2], MIXED], vec![None; 2], 2),
            (
                [MIXED, MIXED, [Some("local"); 2]],
                vec![Some("local"); 2],
                3,
            ),
            ([MIXED, MIXED, MIXED], vec![], 3),
        ] {
            let mut calls = Vec::new();
            let verdicts = ask_until_agreed(
                |verdict| *verdict,
                |is_local| {
                    calls.push(is_local);
                    std::future::ready(answers[calls.len() - 1].to_vec())
                },
            );
            assert_eq!(verdicts.await, expected);
            assert_eq!(calls, [false, false, true][..asked]);
        }
    }

    #[test]
    fn the_numbers_reach_from_one_to_the_limit_and_have_the_cost() {
        assert_eq!(numbers(5, 1), [1, 2, 3, 4, 5]);
        assert_eq!(numbers(1, 1), [1]);
        assert_eq!(numbers(5, 9), [1, 2, 3, 4, 5, 9]);
        for (limit, cost) in [(23, 24), (24, 1), (1000, 7), (u64::MAX, u64::MAX - 1)] {
            let numbers = numbers(limit, cost);
            assert!(numbers.len() <= MAX_POINTS, "{numbers:?}");
            assert!(numbers.starts_with(&[1]) && numbers.contains(&limit));
            assert!(numbers.contains(&cost));
            assert!(numbers.is_sorted_by(|one, next| one < next));
        }
    }
}
