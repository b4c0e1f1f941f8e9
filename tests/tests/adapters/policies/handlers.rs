//! The same in attributes.

use actix_web::{HttpResponse, web};
use axum::{Extension, Router, body::Body, extract::Path, routing::any};
use http::StatusCode;
use ratelimit_core::{Limiter, MemoryStore};

use super::{
    connection::{Open, eventually},
    site::ticks,
};
use crate::{
    client::{ask, get, post, post_chunked},
    server::{clock, serve_actix, serve_axum},
};

mod of_axum {
    use super::{Body, Path, StatusCode, ticks};
    use ratelimit_axum::rate_limit;

    #[rate_limit("2/min", charge_on = [401, "5xx"])]
    pub(super) async fn login(Path(code): Path<u16>) -> StatusCode {
        StatusCode::from_u16(code).expect("a status")
    }

    #[rate_limit("100/min; concurrency 2 lease 1h")]
    pub(super) async fn stream() -> Body {
        Body::from_stream(ticks())
    }

    #[rate_limit("1000/min", cost = "header:x-tokens", settle = "header:x-tokens-used")]
    pub(super) async fn llm(Path(tokens): Path<String>) -> [(&'static str, String); 1] {
        [("x-tokens-used", tokens)]
    }

    #[rate_limit("1000/min", cost = "body")]
    pub(super) async fn upload(body: String) -> String {
        body
    }

    #[rate_limit("1/min; 2/min by route", shadow, marks)]
    pub(super) async fn watched() -> &'static str {
        "hello"
    }
}

mod of_actix {
    use super::{HttpResponse, ticks, web};
    use actix_web::http::StatusCode;
    use ratelimit_actix::rate_limit;

    #[rate_limit("2/min", charge_on = [401, "5xx"])]
    pub(super) async fn login(code: web::Path<u16>) -> HttpResponse {
        HttpResponse::new(StatusCode::from_u16(*code).expect("a status"))
    }

    #[rate_limit("100/min; concurrency 2 lease 1h")]
    pub(super) async fn stream() -> HttpResponse {
        HttpResponse::Ok().streaming(ticks())
    }

    #[rate_limit("1000/min", cost = "header:x-tokens", settle = "header:x-tokens-used")]
    pub(super) async fn llm(tokens: web::Path<String>) -> HttpResponse {
        let tokens = ("x-tokens-used", tokens.into_inner());
        HttpResponse::Ok().insert_header(tokens).finish()
    }

    #[rate_limit("1000/min", cost = "body")]
    pub(super) async fn upload(body: String) -> String {
        body
    }

    #[rate_limit("1/min; 2/min by route", shadow, marks)]
    pub(super) async fn watched() -> &'static str {
        "hello"
    }
}

fn limiter() -> Limiter {
    Limiter::new(MemoryStore::new().clock(clock()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attributes_hold_settle_and_mark_as_layers_do() {
    let router = Router::new()
        .route("/login/{code}", any(of_axum::login))
        .route("/stream", any(of_axum::stream))
        .route("/llm/{tokens}", any(of_axum::llm))
        .route("/upload", any(of_axum::upload))
        .route("/watched", any(of_axum::watched));
    let axum = serve_axum(router.layer(Extension(limiter()))).await;
    let limiter = limiter();
    let actix = serve_actix(move |app| {
        app.app_data(limiter.clone())
            .route("/login/{code}", web::to(of_actix::login))
            .route("/stream", web::to(of_actix::stream))
            .route("/llm/{tokens}", web::to(of_actix::llm))
            .route("/upload", web::to(of_actix::upload))
            .route("/watched", web::to(of_actix::watched));
    });

    for server in [axum, actix] {
        let mut statuses = Vec::new();
        for code in [200, 401, 204, 200, 500, 200] {
            statuses.push(get(server, &format!("/login/{code}")).await.status);
        }
        assert_eq!(statuses, [200, 401, 204, 200, 500, 429]);

        let first = Open::ask(server, "/stream", &[]).await;
        let second = Open::ask(server, "/stream", &[]).await;
        assert_eq!((first.status, second.status), (200, 200));
        assert_eq!(Open::ask(server, "/stream", &[]).await.status, 429);
        drop(first);
        let is_free =
            eventually(|| async { Open::ask(server, "/stream", &[]).await.status == 200 });
        assert!(is_free.await);

        ask(server, "GET /llm/150", &["x-tokens: 400"]).await;
        let after = ask(server, "GET /llm/1", &["x-tokens: 1"]).await;
        assert_eq!(after.field("x-ratelimit-remaining"), Some("849"));

        let upload = post(server, "/upload", &"x".repeat(300)).await;
        assert_eq!(upload.field("x-ratelimit-remaining"), Some("700"));
        let chunked = post_chunked(server, "/upload", &[&"x".repeat(300)]).await;
        assert_eq!(chunked.field("x-ratelimit-remaining"), Some("699"));
        let upload = post(server, "/upload", "x").await;
        assert_eq!(upload.field("x-ratelimit-remaining"), Some("399"));

        let (one, two) = (get(server, "/watched").await, get(server, "/watched").await);
        assert_eq!((one.status, two.status), (200, 200));
        assert_eq!(one.field("x-ratelimit-shadow"), None);
        assert_eq!(two.field("x-ratelimit-shadow"), Some("denied"));
    }
}
