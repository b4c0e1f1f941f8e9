//! Who is denied most.

use std::collections::BTreeMap;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use ratelimit_core::Offender;
use serde::Serialize;

use super::json;
use crate::{access, app::App, query::Query, refusal::Refusal};

const DEFAULT_MOST: usize = 10;
const HIGHEST_MOST: usize = 100;

/// The most denied keys by policy, the worst first.
#[derive(Serialize)]
struct Offenders {
    policies: BTreeMap<String, Vec<Worst>>,
}

/// A key, and how often it was denied: between `denied - error` and `denied` times.
#[derive(Serialize)]
struct Worst {
    key: String,
    denied: u64,
    error: u64,
}

pub(super) async fn get(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let rules = app.rules();
    access::admit_request(&app, &rules, &request)?;
    let query = Query(request.uri().query().unwrap_or_default());
    let most = query.one("most")?;
    let most = most.map_or(Ok(DEFAULT_MOST), |text| most_of(&text))?;
    let names = match query.one("policy")? {
        Some(name) => {
            let policy = rules.policies.named(&name);
            let policy = policy.ok_or_else(|| Refusal::bad_request("unknown policy"))?;
            vec![policy.name().to_owned()]
        }
        None => app.limiter().policies_with_offenders(),
    };
    let policies = names.into_iter().map(|name| {
        let worst = app.limiter().offenders(&name, most);
        (name, worst.into_iter().map(Worst::from).collect())
    });
    let policies = policies.collect();
    Ok(json(StatusCode::OK, &Offenders { policies }))
}

impl From<Offender> for Worst {
    fn from(offender: Offender) -> Worst {
        Worst {
            key: offender.key.to_string(),
            denied: offender.denied,
            error: offender.error,
        }
    }
}

fn most_of(text: &str) -> Result<usize, Refusal> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let most = digits.then(|| text.parse().ok()).flatten();
    let most = most.filter(|most| (1..=HIGHEST_MOST).contains(most));
    let expected = || format!("most must be a whole number from 1 to {HIGHEST_MOST}");
    most.ok_or_else(|| Refusal::bad_request(expected()))
}
