//! The routes of the REST API.

mod actuator;
mod check;
mod explain;
mod forward_auth;
mod guard;
mod offenders;
mod post_check;
mod receipt;
mod remaining;
mod reset;

use std::{convert::Infallible, net::SocketAddr};

use axum::{
    BoxError, Router,
    body::{Body, HttpBody},
    extract::{Request, State},
    http::{
        Method, Response, StatusCode,
        header::{ALLOW, CONTENT_TYPE},
    },
    response::IntoResponse,
    routing::{any, delete, get, post},
};
use bytes::Bytes;
use futures_util::future::Either;
use ratelimit_core::Policy;
use serde_json::Value;
use tower::{Layer as _, Service as _};

use self::{
    guard::{Guard, GuardState},
    post_check::PostCheck,
};
#[cfg(feature = "console")]
use crate::console;
use crate::{
    access_log::NO_ROUTE,
    api_error::ApiError,
    app::App,
    json_response::{json, to_json},
};

/// The path of a check.
const CHECK_PATH: &str = "/api/v1/rate-limit/check";

const OPENAPI: &str = include_str!("../../openapi.json");

/// Placeholder for the policy names in the document.
const POLICIES: &str = "\"{policies}\"";

/// Placeholder for whether a check may leave out both policy and algorithm.
const OPTIONAL: &str = "\"{optional}\"";

/// The routes of a listener.
///
/// Fast path: `POST` of a check is called without the router, which looks the path up, puts it into the extensions, clones
/// boxed services and boxes futures: 5,000 of 38,600 instructions (`cargo xtask bench --only rest`). The router serves the
/// same route, and both answer alike, but that the connection adds the `Content-Length`, which the router does otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    router: Router,
    check: Option<Guard<PostCheck>>,
}

impl Routes {
    /// Calls the route of a request. All routes are always ready.
    pub(crate) fn call<B>(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> + use<B>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let is_check = request.method() == Method::POST && request.uri().path() == CHECK_PATH;
        match &self.check {
            Some(check) if is_check => Either::Left(check.clone().call(request.map(Body::new))),
            _ => Either::Right(self.router.clone().call(request)),
        }
    }
}

impl From<Router> for Routes {
    fn from(router: Router) -> Routes {
        let check = None;
        Routes { router, check }
    }
}

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

    /// The routes of [`router_with`](Self::router_with), with the fast path to `POST` of a check.
    pub(crate) fn listener_routes(&self, others: Router<App>) -> Routes {
        // A check is not below the path of the console.
        let guard_state = GuardState::new(self, self.listen(), false, CHECK_PATH);
        Routes {
            router: self.router_with(others),
            check: Some(guard_state.layer(PostCheck(self.clone()))),
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
        .route(CHECK_PATH, check)
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
        .route("/metrics", get(actuator::prometheus))
}

/// The routes of every listener.
fn common_routes() -> Router<App> {
    Router::new()
        .route("/actuator/health", get(actuator::health))
        .route("/actuator/health/liveness", get(actuator::liveness))
        .route("/actuator/health/readiness", get(actuator::health))
        .route("/healthz", get(actuator::health))
        .route("/readyz", get(actuator::health))
        .route("/livez", get(actuator::liveness))
        .route("/", get(actuator::index))
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
    routes.layer(GuardState::new(app, listen, has_console, NO_ROUTE))
}

fn with_fallbacks(routes: Router<App>) -> Router<App> {
    let routes = routes.fallback(not_found);
    routes.method_not_allowed_fallback(not_allowed)
}

/// The document with the names of the current policies.
async fn openapi(State(app): State<App>) -> impl IntoResponse {
    let document = app.openapi(|rules| {
        let names = rules.policies.iter().map(Policy::name);
        let names: Vec<String> = names.map(|name| Value::from(name).to_string()).collect();
        let document = OPENAPI.replace(POLICIES, &names.join(", "));
        document.replace(OPTIONAL, &(!rules.requires_policy).to_string())
    });
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
