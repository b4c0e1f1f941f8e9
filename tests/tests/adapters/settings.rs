//! Every field of a policy in every adapter, as the tables of docs/reference/settings.md say.

use std::{collections::BTreeSet, net::SocketAddr};

use actix_web::{HttpRequest, HttpResponse, web};
use axum::{Extension, Router, body::Body, routing::any};
use http::{Request, Response, StatusCode, request::Parts};
use ratelimit_core::{Key, Limiter, MemoryStore};
use ratelimit_http::{
    key::KeyError, policy::HttpPolicy, policy_file::policy_field_names, registry::Registry,
};
use ratelimit_tower::{OutgoingError, OutgoingLimitLayer};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::{
    client::ask,
    server::{Down, clock, serve_actix, serve_axum},
};

/// The places in which a policy limits requests of a service.
const INCOMING: [Place; 5] = [
    Place::Tower,
    Place::Axum,
    Place::Actix,
    Place::AxumAttribute,
    Place::ActixAttribute,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Tower,
    Axum,
    Actix,
    AxumAttribute,
    ActixAttribute,
    Outgoing,
}

/// A policy with a field, and the requests that show that it is honoured.
struct Case {
    field: &'static str,
    policy: &'static str,
    is_store_down: bool,
    requests: Requests,
}

enum Requests {
    /// The statuses of requests of alice.
    Statuses(&'static [u16]),
    /// Of 50 requests of alice at least so many pass. A refund in the background may come late.
    AtLeast(usize),
}

use Requests::{AtLeast, Statuses};

const fn case(field: &'static str, policy: &'static str, requests: Requests) -> Case {
    Case {
        field,
        policy,
        is_store_down: false,
        requests,
    }
}

/// One case for each field of a policy that an outgoing limit has, too.
const OF_ENGINE: [Case; 10] = [
    case(
        "limits",
        "limits = 'fixed_window 1/h'",
        Statuses(&[200, 429]),
    ),
    case(
        "cost",
        "limits = 'fixed_window 2/h'\ncost = 2",
        Statuses(&[200, 429]),
    ),
    case(
        "throttle",
        "limits = 'fixed_window 1/h'\nthrottle = 'soft 100%'",
        Statuses(&[200, 200, 429]),
    ),
    case(
        "shadow",
        "limits = 'fixed_window 1/h'\nshadow = true",
        Statuses(&[200, 200]),
    ),
    case(
        "enforced",
        "limits = 'fixed_window 1/h'\nenforced = 0",
        Statuses(&[200, 200]),
    ),
    case(
        "prefetch",
        "limits = 'fixed_window 4/h'\ncost = 4\nprefetch = '50%'",
        Statuses(&[200, 429]),
    ),
    case("tiers", TIERS, Statuses(&[200, 200, 429])),
    case("tenants", TIERS, Statuses(&[200, 200, 429])),
    Case {
        is_store_down: true,
        ..case(
            "on_failure",
            "limits = '5/h'\non_failure = 'closed'",
            Statuses(&[503]),
        )
    },
    Case {
        is_store_down: true,
        ..case(
            "instances",
            "limits = 'fixed_window 4/h'\non_failure = 'local_share'\ninstances = 2",
            Statuses(&[200, 200, 429]),
        )
    },
];

const TIERS: &str = "limits = 'fixed_window 1/h'\ntiers = { pro = 'fixed_window 2/h' }\ntenants = { 'alice' = 'pro' }";

/// One case for each field about HTTP.
const OF_HTTP: [Case; 5] = [
    case(
        "exempt",
        "limits = 'fixed_window 1/h'\nexempt = ['key:alice']",
        Statuses(&[200, 200]),
    ),
    case(
        "blocked",
        "limits = 'fixed_window 1/h'\nblocked = ['key:alice']",
        Statuses(&[403]),
    ),
    case(
        "blocked_status",
        "limits = '5/h'\nblocked = ['key:alice']\nblocked_status = 429",
        Statuses(&[429]),
    ),
    case(
        "charge_on",
        "limits = 'fixed_window 1/h'\ncharge_on = ['5xx']",
        AtLeast(3),
    ),
    case(
        "settle",
        "limits = 'fixed_window 10/h'\ncost = 8\nsettle = 'header:x-tokens-used'",
        AtLeast(3),
    ),
];

impl Case {
    fn registry(&self) -> Registry {
        let text = format!("[policy.login]\n{}\n", self.policy);
        Registry::from_toml(&text).unwrap_or_else(|why| panic!("{}: {why}", self.field))
    }

    fn policy(&self) -> HttpPolicy {
        self.registry().get("login").expect("it was read")
    }

    fn limiter(&self) -> Limiter {
        if self.is_store_down {
            return Limiter::new(Down);
        }
        Limiter::new(MemoryStore::new().clock(clock()))
    }

    /// Holds the answers of a place to those that are expected.
    async fn assert_honoured(&self, place: Place) {
        let service = Service::start(place, self).await;
        match self.requests {
            Statuses(expected) => {
                for (number, status) in expected.iter().enumerate() {
                    let answer = service.status().await;
                    assert_eq!(answer, *status, "{} in {place:?}, {number}", self.field);
                }
            }
            AtLeast(expected) => {
                let mut passed = 0;
                for _ in 0..50 {
                    passed += usize::from(service.status().await == 200);
                }
                assert!(passed >= expected, "{} in {place:?}: {passed}", self.field);
            }
        }
    }
}

/// A service with the policy in front of it.
enum Service {
    Server(SocketAddr),
    Tower(ratelimit_tower::RateLimitLayer),
    Outgoing(OutgoingLimitLayer),
}

impl Service {
    async fn start(place: Place, case: &Case) -> Service {
        let (limiter, policy, registry) = (case.limiter(), case.policy(), case.registry());
        match place {
            Place::Tower => {
                Service::Tower(ratelimit_tower::RateLimitLayer::new(limiter, policy).key_by(user))
            }
            Place::Outgoing => {
                let policy = policy.policy().clone();
                Service::Outgoing(OutgoingLimitLayer::new(limiter, policy).key_by(user))
            }
            Place::Axum => {
                let layer = ratelimit_axum::RateLimitLayer::new(limiter, policy).key_by(user);
                let router = Router::new().route("/", any(hello)).layer(layer);
                Service::Server(serve_axum(router).await)
            }
            Place::AxumAttribute => {
                let router = Router::new().route("/", any(axum_handler));
                let router = router.layer(Extension(registry)).layer(Extension(limiter));
                Service::Server(serve_axum(router).await)
            }
            Place::Actix => {
                let limit = ratelimit_actix::RateLimit::new(limiter, policy).key_by(actix_user);
                Service::Server(serve_actix(move |app| {
                    let scope = web::scope("").wrap(limit.clone());
                    app.service(scope.route("/", web::to(actix_hello)));
                }))
            }
            Place::ActixAttribute => Service::Server(serve_actix(move |app| {
                app.app_data(limiter.clone())
                    .app_data(web::Data::new(registry.clone()))
                    .route("/", web::to(actix_handler));
            })),
        }
    }

    /// The status of the answer to a request of alice.
    async fn status(&self) -> u16 {
        let request = || {
            let request = Request::get("http://localhost/").header("x-user", "alice");
            request.body(Body::empty()).expect("a request")
        };
        match self {
            Service::Server(server) => ask(*server, "GET /", &["x-user: alice"]).await.status,
            Service::Tower(layer) => {
                let service = layer.layer(service_fn(answer));
                let response = service.oneshot(request()).await.expect("an answer");
                response.status().as_u16()
            }
            Service::Outgoing(layer) => {
                let service = layer.layer(service_fn(answer));
                match service.oneshot(request()).await {
                    Ok(response) => response.status().as_u16(),
                    Err(OutgoingError::Denied(_)) => 429,
                    Err(OutgoingError::Unavailable) => 503,
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
    }
}

async fn answer(_: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
    let response = Response::builder().header("x-tokens-used", "1");
    Ok(response.body(Body::empty())?)
}

async fn hello() -> (StatusCode, [(&'static str, &'static str); 1]) {
    (StatusCode::OK, [("x-tokens-used", "1")])
}

async fn actix_hello() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header(("x-tokens-used", "1"))
        .finish()
}

#[ratelimit_axum::rate_limit(policy = "login", key = user)]
async fn axum_handler() -> (StatusCode, [(&'static str, &'static str); 1]) {
    hello().await
}

#[ratelimit_actix::rate_limit(policy = "login", key = actix_user)]
async fn actix_handler() -> HttpResponse {
    actix_hello().await
}

fn user(request: &Parts) -> Result<Key, KeyError> {
    let user = request.headers.get("x-user").ok_or(KeyError::Missing)?;
    Key::new(user.to_str().map_err(|_| KeyError::Invalid)?).map_err(|_| KeyError::Invalid)
}

fn actix_user(request: &HttpRequest) -> Result<Key, KeyError> {
    let user = request.headers().get("x-user").ok_or(KeyError::Missing)?;
    Key::new(user.to_str().map_err(|_| KeyError::Invalid)?).map_err(|_| KeyError::Invalid)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_field_is_honoured_in_every_adapter() {
    let cases = || OF_ENGINE.iter().chain(&OF_HTTP);
    let covered: BTreeSet<&str> = cases().map(|case| case.field).collect();
    assert_eq!(covered, policy_field_names().collect::<BTreeSet<_>>());

    for case in cases() {
        for place in INCOMING {
            case.assert_honoured(place).await;
        }
    }
}

#[tokio::test]
async fn every_policy_field_of_the_engine_is_honoured_in_outgoing_limits() {
    for case in &OF_ENGINE {
        case.assert_honoured(Place::Outgoing).await;
    }
}
