//! A limited service, tested with a clock that the test moves.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::connect_info::MockConnectInfo,
    http::{Request, Response},
    routing::get,
};
use ratelimit_axum::{Clock, Limiter, MemoryStore, Policy, RateLimitLayer, Timestamp};
use tower::ServiceExt;

/// The service takes its limiter as a parameter: in production one with Redis, in a test one with a clock.
fn app(limiter: Limiter) -> Router {
    let policy = Policy::parse("login", "2/min").expect("limits");
    Router::new()
        .route("/login", get(async || "welcome"))
        .layer(RateLimitLayer::new(limiter, policy))
}

/// Sends a request from an address, without a socket.
async fn login(app: &Router, client: [u8; 4]) -> Response<Body> {
    let app = app
        .clone()
        .layer(MockConnectInfo(SocketAddr::from((client, 443))));
    let request = Request::get("/login").body(Body::empty());
    let response = app.oneshot(request.expect("a request")).await;
    response.expect("a response")
}

#[tokio::test]
async fn a_client_gets_one_more_login_every_thirty_seconds() {
    let clock = Clock::manual(Timestamp::default());
    let app = app(Limiter::new(MemoryStore::new().clock(clock.clone())));
    let ann = [203, 0, 113, 7];

    assert_eq!(login(&app, ann).await.status(), 200);
    assert_eq!(login(&app, ann).await.status(), 200);
    let denied = login(&app, ann).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()["retry-after"], "30");

    clock.advance(Duration::from_secs(29));
    assert_eq!(login(&app, ann).await.status(), 429);
    clock.advance(Duration::from_secs(1));
    assert_eq!(login(&app, ann).await.status(), 200);
}

#[tokio::test]
async fn another_client_has_a_budget_of_its_own() {
    let app = app(Limiter::in_memory());
    for _ in 0..2 {
        assert_eq!(login(&app, [203, 0, 113, 7]).await.status(), 200);
    }
    assert_eq!(login(&app, [203, 0, 113, 7]).await.status(), 429);
    assert_eq!(login(&app, [203, 0, 113, 8]).await.status(), 200);
}

mod of_actix {
    use std::{net::SocketAddr, time::Duration};

    use actix_web::{
        App,
        test::{TestRequest, call_service, init_service},
        web,
    };
    use ratelimit_actix::{Clock, Limiter, MemoryStore, Policy, RateLimit, Timestamp};

    #[actix_web::test]
    async fn a_client_gets_one_more_login_every_thirty_seconds() {
        let clock = Clock::manual(Timestamp::default());
        let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
        let policy = Policy::parse("login", "2/min").expect("limits");
        let app = App::new()
            .wrap(RateLimit::new(limiter, policy))
            .route("/login", web::get().to(async || "welcome"));
        let app = init_service(app).await;
        let login = async || {
            let client = SocketAddr::from(([203, 0, 113, 7], 443));
            let request = TestRequest::get().uri("/login").peer_addr(client);
            call_service(&app, request.to_request()).await.status()
        };

        assert_eq!(login().await, 200);
        assert_eq!(login().await, 200);
        assert_eq!(login().await, 429);
        clock.advance(Duration::from_secs(30));
        assert_eq!(login().await, 200);
    }
}
