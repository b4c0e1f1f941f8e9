//! Policies with their settings and rates.

mod catalog;
mod limit_words;
mod page;
mod view;

use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State, rejection::PathRejection},
    http::{Response, StatusCode},
    routing::get,
};
use serde::Serialize;

pub(super) use self::view::PolicyTerms;
use self::{
    catalog::{CatalogEntry, EnvoySnapshot, catalog},
    page::{Page, PageRequest},
    view::{PolicyDetail, PolicyRow},
};
use crate::{api_error::ApiError, app::App, json_response::json, query::Query};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/console/api/policies", get(list))
        .route("/console/api/policies/{name}", get(detail))
}

#[derive(Serialize)]
struct PolicyList<'a> {
    total: usize,
    next: Option<String>,
    policies: Vec<PolicyRow<'a>>,
}

async fn list(State(app): State<App>, request: Request) -> Result<Response<Body>, ApiError> {
    let (parts, _) = request.into_parts();
    app.check_parameters(&parts, &["q", "sort", "after", "limit"])?;
    let query = Query::of(&parts);
    let page = PageRequest::new(query)?;
    let (rules, envoy) = (app.rules(), EnvoySnapshot::new(&app));
    let Page {
        entries,
        total,
        next,
    } = page.of(&app, catalog(&rules, &envoy));
    let rows = entries.iter().map(|entry| {
        let rates = app.policy_rates(entry.name());
        PolicyRow::new(&app, entry, &rates)
    });
    let policies = rows.collect();
    let list = PolicyList {
        total,
        next,
        policies,
    };
    Ok(json(StatusCode::OK, &list))
}

async fn detail(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response<Body>, ApiError> {
    let Path(name) = name.map_err(|_| ApiError::bad_request("the name is not UTF-8"))?;
    let (rules, envoy) = (app.rules(), EnvoySnapshot::new(&app));
    let configured = rules.policies.http(&name);
    let configured = configured.map(|policy| CatalogEntry::configured(&rules, policy));
    let entry = configured.or_else(|| {
        let mut all = catalog(&rules, &envoy).into_iter();
        all.find(|entry| entry.name() == name)
    });
    let entry = entry.ok_or_else(|| {
        let status = StatusCode::NOT_FOUND;
        ApiError::new(status, "Not found", "there is no policy of this name")
    })?;
    let rates = app.policy_rates(entry.name());
    let detail = PolicyDetail::new(&app, &entry, &rates);
    Ok(json(StatusCode::OK, &detail))
}
