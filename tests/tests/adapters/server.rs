//! A server of either framework, with the same limit in front of the same routes.

use std::net::SocketAddr;

use actix_web::{App, HttpServer, web};
use axum::{Router, routing::get};
use ratelimit_core::{
    Clock, FailureMode, KeySet, Limiter, MemoryStore, Policy, Timestamp,
    store::{Charged, Hit, Store, StoreError, StoreFuture},
};
use ratelimit_http::{client_ip::TrustedProxies, response::HeaderStyle};
use tokio::net::TcpListener;

pub(crate) const BOTH: [Framework; 2] = [Framework::Axum, Framework::Actix];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Framework {
    Axum,
    Actix,
}

/// What is the same in both.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) limiter: Limiter,
    pub(crate) limits: &'static str,
    /// The limits of a second policy, inside of the first.
    pub(crate) inner: Option<&'static str>,
    pub(crate) style: HeaderStyle,
    pub(crate) key: KeyOf,
    pub(crate) options: &'static [Flag],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    Costly,
    Exposed,
    Exempt,
    Shadow,
    OwnAnswer,
    CountPreflight,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyOf {
    Client,
    Proxied,
    Header,
    ApiKeyOrShared,
    Cookie,
    Query,
    ClientAndRoute,
    Method,
    ExplicitHeader,
}

pub(crate) fn clock() -> Clock {
    Clock::manual(Timestamp::from_micros(1_000_500_000))
}

impl Setup {
    pub(crate) fn new(limits: &'static str) -> Setup {
        Setup {
            limiter: Limiter::new(MemoryStore::new().clock(clock())),
            limits,
            inner: None,
            style: HeaderStyle::default(),
            key: KeyOf::Client,
            options: &[],
        }
    }

    pub(crate) fn down(self, mode: FailureMode) -> Setup {
        let limiter = Limiter::new(Down).failure_mode(mode);
        Setup { limiter, ..self }
    }

    pub(crate) async fn serve(&self, framework: Framework) -> SocketAddr {
        match framework {
            Framework::Axum => serve_axum(self.axum()).await,
            Framework::Actix => self.actix(),
        }
    }
}

fn policy(name: &str, limits: &str) -> Policy {
    Policy::parse(name, limits).expect("the limits of a test")
}

/// A store that never answers.
#[derive(Debug)]
pub(crate) struct Down;

impl Store for Down {
    fn hit(&self, _: Hit<'_>) -> StoreFuture<Charged> {
        StoreFuture::ready(Err(StoreError::Unavailable { source: None }))
    }

    fn reset(&self, _: &Policy, _: &KeySet) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }
}

fn proxies() -> TrustedProxies {
    TrustedProxies::parse(["127.0.0.1"]).expect("an address")
}

pub(crate) async fn serve_axum(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// Serves what `configure` adds to an app, with two workers.
pub(crate) fn serve_actix(
    configure: impl Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
) -> SocketAddr {
    let server = HttpServer::new(move || App::new().configure(configure.clone()));
    let server = server.workers(2).disable_signals();
    let server = server.bind(("127.0.0.1", 0)).expect("a free port");
    let address = server.addrs()[0];
    tokio::spawn(server.run());
    address
}

impl Setup {
    fn axum(&self) -> Router {
        use ratelimit_axum::{
            ApiKey, ClientKey, CookieKey, HeaderKey, KeyExtractor as _, MethodKey, QueryKey,
            RateLimitLayer, RouteKey,
        };
        let name = http::HeaderName::from_static("x-tenant");
        let layer = RateLimitLayer::new(self.limiter.clone(), policy("outer", self.limits));
        let layer = layer.headers(self.style);
        let mut layer = match self.key {
            KeyOf::Client => layer,
            KeyOf::Proxied => layer.key_by(ClientKey::behind(proxies())),
            KeyOf::Header => layer.key_by(HeaderKey::new(name)),
            KeyOf::ApiKeyOrShared => layer.key_by(ApiKey.or_shared("anonymous")),
            KeyOf::Cookie => layer.key_by(CookieKey::new("sid").or(ClientKey::new())),
            KeyOf::Query => layer.key_by(QueryKey::new("key", |key| key != "forged")),
            KeyOf::ClientAndRoute => {
                layer.key_by(ClientKey::new().and(RouteKey.or_shared("no route")))
            }
            KeyOf::Method => layer.key_by(MethodKey),
            KeyOf::ExplicitHeader => {
                layer.key_by(ClientKey::new().explicit_header(name, |key| key != "forged"))
            }
        };
        for option in self.options {
            layer = match option {
                Flag::Costly => layer.cost(|request| request.uri.path().len() as u64),
                Flag::Exposed => layer.expose_headers(),
                Flag::Exempt => layer.exempt_when(|request| request.uri.path() == "/health"),
                Flag::Shadow => layer.shadow(),
                Flag::OwnAnswer => layer.on_denied(|_| {
                    let mut own = http::Response::new(axum::body::Body::from("slow down"));
                    *own.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
                    own
                }),
                Flag::CountPreflight => layer.count_preflight(),
            };
        }
        let mut router = Router::new()
            .route("/", get(async || "hello"))
            .route("/health", get(async || "well"))
            .route("/users/{id}", get(async || "a user"))
            .route("/left", get(left_axum))
            .route(
                "/own",
                get(async || [("x-ratelimit-limit", "1"), ("x-ratelimit-remaining", "x")]),
            )
            .fallback(async || (http::StatusCode::NOT_FOUND, "nothing here"));
        if let Some(inner) = self.inner {
            let inner = RateLimitLayer::new(self.limiter.clone(), policy("inner", inner));
            router = router.layer(inner.headers(self.style));
        }
        router.layer(layer)
    }

    fn actix(&self) -> SocketAddr {
        use actix_web::{HttpResponse, middleware::Condition};
        use ratelimit_actix::{
            ApiKey, ClientKey, CookieKey, HeaderKey, KeyExtractor as _, MethodKey, QueryKey,
            RateLimit, RouteKey,
        };
        let name = actix_web::http::header::HeaderName::from_static("x-tenant");
        let limit = RateLimit::new(self.limiter.clone(), policy("outer", self.limits));
        let limit = limit.headers(self.style);
        let mut limit = match self.key {
            KeyOf::Client => limit,
            KeyOf::Proxied => limit.key_by(ClientKey::behind(proxies())),
            KeyOf::Header => limit.key_by(HeaderKey::new(name)),
            KeyOf::ApiKeyOrShared => limit.key_by(ApiKey.or_shared("anonymous")),
            KeyOf::Cookie => limit.key_by(CookieKey::new("sid").or(ClientKey::new())),
            KeyOf::Query => limit.key_by(QueryKey::new("key", |key| key != "forged")),
            KeyOf::ClientAndRoute => {
                limit.key_by(ClientKey::new().and(RouteKey.or_shared("no route")))
            }
            KeyOf::Method => limit.key_by(MethodKey),
            KeyOf::ExplicitHeader => {
                limit.key_by(ClientKey::new().explicit_header("x-tenant", |key| key != "forged"))
            }
        };
        for option in self.options {
            limit = match option {
                Flag::Costly => limit.cost(|request| request.path().len() as u64),
                Flag::Exposed => limit.expose_headers(),
                Flag::Exempt => limit.exempt_when(|request| request.path() == "/health"),
                Flag::Shadow => limit.shadow(),
                Flag::OwnAnswer => {
                    limit.on_denied(|_| HttpResponse::ServiceUnavailable().body("slow down"))
                }
                Flag::CountPreflight => limit.count_preflight(),
            };
        }
        let inner = RateLimit::new(
            self.limiter.clone(),
            policy("inner", self.inner.unwrap_or("1/s")),
        );
        let (inner, is_nested) = (inner.headers(self.style), self.inner.is_some());
        let app = move || {
            App::new()
                .wrap(Condition::new(is_nested, inner.clone()))
                .wrap(limit.clone())
                .route("/", web::get().to(async || "hello"))
                .route("/health", web::get().to(async || "well"))
                .route("/users/{id}", web::get().to(async || "a user"))
                .route("/left", web::get().to(left_actix))
                .route(
                    "/own",
                    web::get().to(async || {
                        HttpResponse::Ok()
                            .insert_header(("x-ratelimit-limit", "1"))
                            .insert_header(("x-ratelimit-remaining", "x"))
                            .finish()
                    }),
                )
                .default_service(web::to(async || {
                    HttpResponse::NotFound()
                        .content_type("text/plain; charset=utf-8")
                        .body("nothing here")
                }))
        };
        let server = HttpServer::new(app).workers(2).disable_signals();
        let server = server.bind(("127.0.0.1", 0)).expect("a free port");
        let address = server.addrs()[0];
        tokio::spawn(server.run());
        address
    }
}

async fn left_axum(
    ratelimit_axum::CurrentDecision(decision): ratelimit_axum::CurrentDecision,
) -> String {
    format!("{:?}", decision.map(|decision| decision.remaining))
}

async fn left_actix(
    ratelimit_actix::CurrentDecision(decision): ratelimit_actix::CurrentDecision,
) -> String {
    format!("{:?}", decision.map(|decision| decision.remaining))
}
