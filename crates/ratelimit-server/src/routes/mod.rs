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
    body::Body,
    extract::State,
    http::{
        Response, StatusCode,
        header::{ALLOW, CONTENT_TYPE, HeaderValue},
    },
    middleware,
    response::IntoResponse,
    routing::{any, delete, get, post},
};
use ratelimit_core::Policy;
use serde::Serialize;
use serde_json::Value;

use self::guard::GuardState;
use crate::{api_error::ApiError, app::App, console};

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
        let routes = match self.admin_listen() {
            Some(_) => routes,
            None => routes.merge(admin_routes()),
        };
        finish(routes, self, self.listen())
    }

    /// The routes of the admin listener.
    pub fn admin_router(&self) -> Router {
        let routes = common_routes().merge(admin_routes());
        finish(routes, self, self.admin_listen().unwrap_or(self.listen()))
    }

    /// The metrics alone, under a path.
    pub(crate) fn metrics_router(&self, path: &str) -> Router {
        let routes = Router::new().route(path, get(actuator::prometheus));
        finish(routes, self, self.listen())
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
        .merge(console::routes())
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

fn finish(routes: Router<App>, app: &App, listen: SocketAddr) -> Router {
    let guard_state = GuardState {
        app: app.clone(),
        is_loopback: listen.ip().to_canonical().is_loopback(),
    };
    routes
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(guard_state, guard::guard))
        .with_state(app.clone())
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
    ApiError::new(StatusCode::NOT_FOUND, "Not found", "see /openapi.json")
}

async fn not_allowed() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "Method not allowed",
        "see /openapi.json",
    )
}

/// A JSON response.
fn json(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    let mut response = Response::new(to_json(body));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn to_json(body: &impl Serialize) -> Body {
    Body::from(serde_json::to_vec(body).expect("numbers and text can be written"))
}
