//! Bugs of other adapters; case 25 is in `attribute`, case 26 in the adapters' own compile tests.

use std::net::SocketAddr;

use actix_web::{App, HttpServer, web};
use axum::{Router, routing::get};
use http::StatusCode;
use ratelimit_actix::RateLimit;
use ratelimit_axum::RateLimitLayer;
use ratelimit_core::{Limiter, Policy};
use tokio::net::TcpListener;

use crate::{client, log::Log};

#[tokio::test]
async fn case_21_without_connect_info_one_line_says_what_to_add() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let layer = RateLimitLayer::per_client("10/min").expect("a limit");
    let router = Router::new().route("/", get(async || "hello")).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let server = listener.local_addr().expect("it is bound");
    // The line that everybody writes first.
    tokio::spawn(async move { axum::serve(listener, router).await });

    for _ in 0..3 {
        let answer = client::get(server, "/").await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(answer.body.contains("The client is unknown"));
    }

    let advice = "app.into_make_service_with_connect_info::<SocketAddr>()";
    assert_eq!(log.holding(advice), 1);
}

#[actix_web::test]
async fn case_21_without_a_peer_one_line_says_what_to_add_in_actix() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let limit = RateLimit::per_client("10/min").expect("a limit");
    let app = App::new().wrap(limit);
    let app = app.route("/", web::get().to(async || "hello"));
    let app = actix_web::test::init_service(app).await;

    for _ in 0..3 {
        let request = actix_web::test::TestRequest::get().to_request();
        let answer = actix_web::test::call_service(&app, request).await;
        assert_eq!(answer.status().as_u16(), 500);
    }

    assert_eq!(log.holding("no request has a client address"), 1);
    assert_eq!(log.holding("ClientIpResolver::trust_unix_sockets"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_22_all_connections_to_axum_share_one_budget() {
    let layer = RateLimitLayer::per_client("3/h").expect("a limit");
    let router = Router::new().route("/", get(async || "hello")).layer(layer);
    let server = crate::server::serve_axum(router).await;

    assert_eq!(passed(server).await, 3);
}

/// The worker closure that everybody writes first: what it makes, it makes for each worker.
macro_rules! server_of_four_workers {
    ($limit:expr) => {{
        let server = HttpServer::new(move || {
            let app = App::new().wrap($limit);
            app.route("/", web::get().to(async || "hello"))
        });
        let server = server.workers(4).disable_signals();
        let server = server.bind(("127.0.0.1", 0)).expect("a free port");
        (server.addrs()[0], server.run())
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_22_all_workers_of_actix_share_one_budget_under_tokio() {
    let (server, running) = server_of_four_workers!(RateLimit::per_client("3/h").expect("a limit"));
    tokio::spawn(running);
    assert_eq!(passed(server).await, 3);

    let limiter = Limiter::in_memory();
    let (server, running) = server_of_four_workers!(RateLimit::new(
        limiter.clone(),
        Policy::parse("api", "3/h").expect("a limit"),
    ));
    tokio::spawn(running);
    assert_eq!(passed(server).await, 3);
}

#[actix_web::test]
async fn case_22_all_workers_of_actix_share_one_budget_under_its_own_system() {
    let (server, running) = server_of_four_workers!(RateLimit::per_client("3/h").expect("a limit"));
    actix_web::rt::spawn(running);

    assert_eq!(passed(server).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_app_with_two_limits_has_two_budgets() {
    let server = HttpServer::new(|| {
        let limit = |limits: &str| RateLimit::per_client(limits).expect("a limit");
        App::new()
            .service(
                web::scope("/a")
                    .wrap(limit("3/h"))
                    .route("", web::get().to(async || "a")),
            )
            .service(
                web::scope("/b")
                    .wrap(limit("2/h"))
                    .route("", web::get().to(async || "b")),
            )
    });
    let server = server.workers(2).disable_signals();
    let server = server.bind(("127.0.0.1", 0)).expect("a free port");
    let address = server.addrs()[0];
    tokio::spawn(server.run());

    let mut statuses = Vec::new();
    for path in ["/a", "/a", "/a", "/a", "/b", "/b", "/b"] {
        statuses.push(client::get(address, path).await.status);
    }

    assert_eq!(statuses, [200, 200, 200, 429, 200, 200, 429]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scopes_with_a_limiter_each_from_one_helper_have_a_budget_each() {
    fn limit(limiter: &Limiter) -> RateLimit {
        let policy = Policy::parse("api", "1/h").expect("a limit");
        RateLimit::new(limiter.clone(), policy)
    }
    let limiters = [Limiter::in_memory(), Limiter::in_memory()];
    let server = HttpServer::new(move || {
        let scope = |path: &str, limiter: &Limiter| {
            let scope = web::scope(path).wrap(limit(limiter));
            scope.route("", web::get().to(async || "hello"))
        };
        App::new()
            .service(scope("/a", &limiters[0]))
            .service(scope("/b", &limiters[1]))
    });
    let server = server.workers(2).disable_signals();
    let server = server.bind(("127.0.0.1", 0)).expect("a free port");
    let address = server.addrs()[0];
    tokio::spawn(server.run());

    let mut statuses = Vec::new();
    for path in ["/a", "/b", "/a", "/b"] {
        statuses.push(client::get(address, path).await.status);
    }

    assert_eq!(statuses, [200, 200, 429, 429]);
}

async fn passed(server: SocketAddr) -> usize {
    let mut passed = 0;
    for _ in 0..12 {
        passed += usize::from(client::get(server, "/").await.status == 200);
    }
    passed
}
