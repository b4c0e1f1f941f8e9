//! The routes of the REST API.

mod actuator;
mod check;
mod explain;
mod forward_auth;
mod guard;
mod offenders;
mod receipt;
mod remaining;
mod reset;

use std::net::SocketAddr;

use axum::{
    Router,
    extract::State,
    http::{
        StatusCode,
        header::{ALLOW, CONTENT_TYPE},
    },
    response::IntoResponse,
    routing::{any, delete, get, post},
};
use ratelimit_core::Policy;
use serde_json::Value;

#[cfg(feature = "envoy")]
use self::guard::GuardState;
#[cfg(feature = "console")]
use crate::console;
use crate::{
    api_error::ApiError,
    app::App,
    json_response::{json, to_json},
};

const OPENAPI: &str = include_str!("../../openapi.json");

/// Placeholder for the policy names in the document.
const POLICIES: &str = "\"{policies}\"";

impl App {
    /// The routes of the main listener: all, or those of clients if there is an admin listener. Requests carry their
    /// [`Peer`](crate::Peer) in their extensions.
    pub fn router(&self) -> Router {
        self.router_with(Router::new())
    }

    /// The routes of the main listener, and others.
    pub(crate) fn router_with(&self, others: Router<App>) -> Router {
        let routes = common_routes().merge(client_routes()).merge(others);
        match self.admin_listen() {
            Some(_) => {
                finish(with_fallbacks(routes), self, self.listen(), false).with_state(self.clone())
            }
            None => finish_admin(routes, self, self.listen()),
        }
    }

    /// The routes of the admin listener.
    pub fn admin_router(&self) -> Router {
        let listen = self.admin_listen().unwrap_or(self.listen());
        finish_admin(common_routes(), self, listen)
    }

    /// The metrics alone, under a path.
    pub(crate) fn metrics_router(&self, path: &str) -> Router {
        let routes = Router::new().route(path, get(actuator::prometheus));
        finish(with_fallbacks(routes), self, self.listen(), false).with_state(self.clone())
    }
}

fn client_routes() -> Router<App> {
    // Without its own handler, HEAD would run the handler of GET and charge.
    let check = get(check::get).head(check_head).post(check::post);
    Router::new()
        .route("/api/v1/rate-limit/check", check)
        .route("/api/v1/rate-limit/remaining", get(remaining::get))
        .route("/api/v1/rate-limit/release", post(receipt::release))
        .route("/api/v1/rate-limit/renew", post(receipt::renew))
        .route("/api/v1/rate-limit/forward-auth", any(forward_auth::any))
}

fn admin_routes() -> Router<App> {
    Router::new()
        .route("/api/v1/rate-limit/reset", delete(reset::delete))
        .route("/api/v1/rate-limit/explain", get(explain::get))
        .route("/api/v1/rate-limit/offenders", get(offenders::get))
        .route("/api/v1/rate-limit/refund", post(receipt::refund))
        .route("/api/v1/rate-limit/settle", post(receipt::settle))
        .route("/actuator/info", get(actuator::info))
        .route("/actuator/prometheus", get(actuator::prometheus))
}

/// The routes of every listener.
fn common_routes() -> Router<App> {
    Router::new()
        .route("/actuator/health", get(actuator::health))
        .route("/actuator/health/liveness", get(actuator::liveness))
        .route("/actuator/health/readiness", get(actuator::health))
        .route("/healthcheck", get(actuator::healthcheck))
        .route("/openapi.json", get(openapi))
}

/// Adds admin calls and the console to the routes, and the middleware.
fn finish_admin(routes: Router<App>, app: &App, listen: SocketAddr) -> Router {
    let routes = routes.merge(admin_routes());
    #[cfg(feature = "console")]
    let routes = routes.merge(console::routes(app));
    let routes = with_fallbacks(routes);
    let routes = finish(routes, app, listen, cfg!(feature = "console"));
    routes.with_state(app.clone())
}

/// Adds the middleware of all routes.
fn finish(routes: Router<App>, app: &App, listen: SocketAddr, has_console: bool) -> Router<App> {
    let guard_state = GuardState {
        app: app.clone(),
        has_console,
        is_loopback: listen.ip().to_canonical().is_loopback(),
    };
    routes.layer(guard_state)
}

fn with_fallbacks(routes: Router<App>) -> Router<App> {
    let routes = routes.fallback(not_found);
    routes.method_not_allowed_fallback(not_allowed)
}

/// The document with the names of the current policies.
async fn openapi(State(app): State<App>) -> impl IntoResponse {
    let rules = app.rules();
    let names = rules.policies.iter().map(Policy::name);
    let names: Vec<String> = names.map(|name| Value::from(name).to_string()).collect();
    let document = OPENAPI.replace(POLICIES, &names.join(", "));
    ([(CONTENT_TYPE, "application/json")], document)
}

async fn check_head() -> impl IntoResponse {
    ([(ALLOW, "GET,POST")], not_allowed().await)
}

async fn not_found() -> ApiError {
    ApiError::not_found()
}

async fn not_allowed() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "Method not allowed",
        "see /openapi.json",
    )
}
