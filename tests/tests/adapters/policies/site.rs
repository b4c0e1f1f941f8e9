//! The service behind the limit, in either framework.

use std::{future::pending, net::SocketAddr, time::Duration};

use actix_web::{App, HttpResponse, HttpServer, web};
use axum::{
    Extension, Router,
    body::Body,
    extract::{Path, Request},
    response::Response,
    routing::any,
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use http::StatusCode;
use hyper_util::rt::TokioIo;
use ratelimit_axum::SlotGuard;
use ratelimit_core::{Limiter, MemoryStore};
use ratelimit_http::client_ip::TrustedProxies;
use ratelimit_http::policy::HttpPolicy;
use tokio::io::AsyncReadExt as _;

use crate::server::{Framework, clock, serve_axum};

/// A service, and the policy in front of it.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) limiter: Limiter,
    policy: HttpPolicy,
    options: Vec<With>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum With {
    /// The main key is the user.
    KeyByUser,
    /// Limits can count by the user.
    UserNamed,
    Marks,
    Shadow,
    /// The header `x-plan` names the tier.
    TierByRequest,
}

impl Site {
    /// A clock that stands still: no lease ends, and nothing comes back by itself.
    pub(crate) fn new(policy: impl Into<HttpPolicy>) -> Site {
        let policy = policy.into();
        Site {
            limiter: Limiter::new(MemoryStore::new().clock(clock())),
            policy,
            options: Vec::new(),
        }
    }

    pub(crate) fn of(limits: &str) -> Site {
        Site::new(policy(limits))
    }

    pub(crate) fn with(mut self, option: With) -> Site {
        self.options.push(option);
        self
    }

    pub(crate) async fn serve(self, framework: Framework) -> SocketAddr {
        match framework {
            Framework::Axum => serve_axum(routes_of_axum().layer(self.layer())).await,
            Framework::Actix => self.serve_actix(),
        }
    }

    pub(crate) fn layer(&self) -> ratelimit_axum::RateLimitLayer {
        use ratelimit_axum::{ClientKey, HeaderKey, KeyExtractor as _, RateLimitLayer};
        let user = || HeaderKey::new(http::HeaderName::from_static("x-user"));
        let client = || ClientKey::behind(proxies());
        let mut layer = RateLimitLayer::new(self.limiter.clone(), self.policy.clone());
        layer = layer.key_by(client());
        for option in &self.options {
            layer = match option {
                With::KeyByUser => layer.key_by(user().or(client())),
                With::UserNamed => layer.named_key("user", user()),
                With::Marks => layer.mark_responses(),
                With::Shadow => layer.shadow(),
                With::TierByRequest => layer.tier(|request| {
                    let plan = request.headers.get("x-plan")?;
                    plan.to_str().ok().map(str::to_owned)
                }),
            };
        }
        layer
    }

    pub(crate) fn limit(&self) -> ratelimit_actix::RateLimit {
        use ratelimit_actix::{ClientKey, HeaderKey, KeyExtractor as _, RateLimit};
        let name = actix_web::http::header::HeaderName::from_static("x-user");
        let user = || HeaderKey::new(name.clone());
        let client = || ClientKey::behind(proxies());
        let mut limit = RateLimit::new(self.limiter.clone(), self.policy.clone());
        limit = limit.key_by(client());
        for option in &self.options {
            limit = match option {
                With::KeyByUser => limit.key_by(user().or(client())),
                With::UserNamed => limit.named_key("user", user()),
                With::Marks => limit.mark_responses(),
                With::Shadow => limit.shadow(),
                With::TierByRequest => limit.tier(|request| {
                    let plan = request.headers().get("x-plan")?;
                    plan.to_str().ok().map(str::to_owned)
                }),
            };
        }
        limit
    }

    fn serve_actix(&self) -> SocketAddr {
        let limit = self.limit();
        let server = HttpServer::new(move || {
            App::new()
                .wrap(limit.clone())
                .configure(routes_of_actix)
                .service(
                    web::resource("/guarded")
                        .wrap_fn(|_, _| async {
                            Err::<actix_web::dev::ServiceResponse, _>(
                                actix_web::error::ErrorUnauthorized("who are you?"),
                            )
                        })
                        .to(async || "never"),
                )
        });
        let server = server
            .workers(2)
            .disable_signals()
            .h1_allow_half_closed(false);
        let server = server.bind(("127.0.0.1", 0)).expect("a free port");
        let address = server.addrs()[0];
        tokio::spawn(server.run());
        address
    }
}

pub(crate) fn policy(limits: &str) -> HttpPolicy {
    HttpPolicy::parse("site", limits).expect("the limits of a test")
}

fn proxies() -> TrustedProxies {
    TrustedProxies::parse(["127.0.0.1"]).expect("an address")
}

/// A body of as many parts, whose length nobody announces.
pub(crate) fn parts(count: usize) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    stream::iter((0..count).map(|_| Ok(Bytes::from_static(b"x"))))
}

/// A body that fails after its first part.
pub(crate) fn broken() -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    let parts = [
        Ok(Bytes::from_static(b"x")),
        Err(std::io::Error::other("broken")),
    ];
    stream::iter(parts)
}

/// A body that never ends.
pub(crate) fn ticks() -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    stream::unfold((), async |()| {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Some((Ok(Bytes::from_static(b"tick\n")), ()))
    })
}

fn routes_of_axum() -> Router {
    Router::new()
        .route("/", any(async || "hello"))
        .route("/other", any(async || "other"))
        .route("/length", any(async |body: String| body.len().to_string()))
        .route(
            "/status/{code}",
            any(async |Path(code): Path<u16>| StatusCode::from_u16(code).expect("a status")),
        )
        .route(
            "/guarded",
            any(async || (StatusCode::UNAUTHORIZED, "who are you?")),
        )
        .route(
            "/used/{tokens}",
            any(async |Path(tokens): Path<String>| [("x-tokens-used", tokens)]),
        )
        .route(
            "/bytes/{count}",
            any(async |Path(count): Path<usize>| "x".repeat(count)),
        )
        .route(
            "/parts/{count}",
            any(async |Path(count): Path<usize>| Body::from_stream(parts(count))),
        )
        .route("/broken", any(async || Body::from_stream(broken())))
        .route("/ticks", any(async || Body::from_stream(ticks())))
        .route("/never", any(async || pending::<&str>().await))
        .route("/socket", any(upgrade_axum))
}

fn routes_of_actix(app: &mut web::ServiceConfig) {
    app.route("/", web::to(async || "hello"))
        .route("/other", web::to(async || "other"))
        .route(
            "/length",
            web::to(async |body: String| body.len().to_string()),
        )
        .route(
            "/status/{code}",
            web::to(async |code: web::Path<u16>| {
                let code = actix_web::http::StatusCode::from_u16(*code);
                HttpResponse::new(code.expect("a status"))
            }),
        )
        .route(
            "/used/{tokens}",
            web::to(async |tokens: web::Path<String>| {
                HttpResponse::Ok()
                    .insert_header(("x-tokens-used", tokens.into_inner()))
                    .finish()
            }),
        )
        .route(
            "/bytes/{count}",
            web::to(async |count: web::Path<usize>| "x".repeat(*count)),
        )
        .route(
            "/parts/{count}",
            web::to(async |count: web::Path<usize>| HttpResponse::Ok().streaming(parts(*count))),
        )
        .route(
            "/broken",
            web::to(async || HttpResponse::Ok().streaming(broken())),
        )
        .route(
            "/ticks",
            web::to(async || HttpResponse::Ok().streaming(ticks())),
        )
        .route("/never", web::to(async || pending::<&str>().await))
        .route(
            "/socket",
            web::to(async |payload: web::Payload| {
                HttpResponse::SwitchingProtocols()
                    .upgrade("websocket")
                    .streaming(payload)
            }),
        );
}

/// The connection outlives the response, so its task takes the slot with it.
async fn upgrade_axum(slot: Option<Extension<SlotGuard>>, request: Request) -> Response {
    tokio::spawn(async move {
        let _slot = slot;
        let upgraded = hyper::upgrade::on(request).await.expect("an upgrade");
        let mut socket = TokioIo::new(upgraded);
        while socket.read_u8().await.is_ok() {}
    });
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    response.body(Body::empty()).expect("a response")
}
