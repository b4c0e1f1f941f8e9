//! `offenders`: the most denied keys.

use std::collections::BTreeMap;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use ratelimit_core::{Offender, Policy};
use serde::Serialize;

use crate::{
    admin_auth,
    api_error::ApiError,
    app::App,
    audit::Audit,
    check_keys::{key_text, name_of_key},
    check_request::unknown_policy,
    config::ReloadableConfig,
    envoy_policy::EnvoyPolicy,
    json_response::json,
    query::Query,
    refusal_log::BadCall,
};

const DEFAULT_COUNT: usize = 10;
const MAX_COUNT: usize = 100;

/// The most denied keys of each policy, in descending order.
#[derive(Serialize)]
struct OffendersResponse {
    policies: OffendersByPolicy,
    /// Those that policies in shadow mode would have denied.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    shadow: OffendersByPolicy,
}

type OffendersByPolicy = BTreeMap<String, Vec<OffenderEntry>>;

/// A key that was denied between `denied - error` and `denied` times.
#[derive(Serialize)]
struct OffenderEntry {
    key: String,
    /// The name, if a limit `by NAME` counts by the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    denied: u64,
    error: u64,
    /// How many of the denials were not enforced. The two kinds are counted apart, so it is all or none.
    watched: u64,
}

pub(super) async fn get(
    State(app): State<App>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let rules = app.rules();
    let caller = admin_auth::admit_request(&app, &rules, &request)?;
    let mut audit = Audit::new("offenders", caller, &request);
    let (parts, _) = request.into_parts();
    app.check_parameters(&parts, &["policy", "most"])?;
    let query = Query::of(&parts);
    let most = query.one("most")?;
    let most = most.map_or(Ok(DEFAULT_COUNT), |text| parse_count(&text))?;
    let names = match query.one("policy")? {
        Some(name) => {
            let policy = rules.policies.named(&name).map(Policy::name);
            let is_of_envoy = || EnvoyPolicy::find(&app, &name).is_some();
            match policy {
                Some(name) => vec![name.to_owned()],
                None if is_of_envoy() => vec![name.into_owned()],
                None => {
                    let why = unknown_policy(&rules, &name);
                    return Err(app.refuse_call(BadCall::UnknownPolicy, &parts, why));
                }
            }
        }
        None => app.limiter().policies_with_offenders(),
    };
    let limiter = app.limiter();
    let response = OffendersResponse {
        policies: entries(
            &app,
            &rules,
            &names,
            |name| limiter.offenders(name, most),
            |_| 0,
        ),
        shadow: entries(
            &app,
            &rules,
            &names,
            |name| limiter.shadow_offenders(name, most),
            |offender| offender.denied,
        )
        .into_iter()
        .filter(|(_, worst)| !worst.is_empty())
        .collect(),
    };
    audit.succeed();
    Ok(json(StatusCode::OK, &response))
}

/// The offenders of each policy. `watched` is the number of their denials that were not enforced.
fn entries(
    app: &App,
    rules: &ReloadableConfig,
    names: &[String],
    worst: impl Fn(&str) -> Vec<Offender>,
    watched: impl Fn(&Offender) -> u64,
) -> OffendersByPolicy {
    let entries = |name: &String| {
        let worst = worst(name).into_iter();
        let configured = rules.policies.named(name).cloned();
        let policy = configured.or_else(|| Some(EnvoyPolicy::find(app, name)?.policy));
        worst
            .map(|offender| OffenderEntry::new(policy.as_ref(), &offender, watched(&offender)))
            .collect()
    };
    names
        .iter()
        .map(|name| (name.clone(), entries(name)))
        .collect()
}

impl OffenderEntry {
    /// The entry of an offender. `policy` is `None` if a reload removed it.
    fn new(policy: Option<&Policy>, offender: &Offender, watched: u64) -> OffenderEntry {
        let by = policy.and_then(|policy| name_of_key(policy, &offender.key));
        OffenderEntry {
            key: key_text(&offender.key),
            by: by.map(str::to_owned),
            denied: offender.denied,
            error: offender.error,
            watched,
        }
    }
}

fn parse_count(text: &str) -> Result<usize, ApiError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let most = digits.then(|| text.parse().ok()).flatten();
    let most = most.filter(|most| (1..=MAX_COUNT).contains(most));
    let expected = || format!("most must be a whole number from 1 to {MAX_COUNT}");
    most.ok_or_else(|| ApiError::bad_request(expected()))
}
