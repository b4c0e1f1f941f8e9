//! Axum, a stack of tower-http, and a client of hyper.

use std::{net::SocketAddr, time::Duration};

use axum::{Extension, Router, extract::ConnectInfo, routing::get};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use ratelimit_core::{Decision, Limiter, Policy};
use ratelimit_tower::{ClientKey, DecisionSharing, OutgoingError, OutgoingLimitLayer};
use tokio::net::TcpListener;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _};
use tower_http::{
    cors::{Any, CorsLayer},
    timeout::TimeoutLayer,
};

use crate::server::{Asker, BOTH, clock, header, layer, number, serve};

async fn serve_axum(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

fn client() -> ClientKey {
    ClientKey::new().peer_by(|request| {
        let peer = request.extensions.get::<ConnectInfo<SocketAddr>>()?;
        Some(peer.0.ip())
    })
}

#[tokio::test]
async fn a_router_of_axum_takes_the_layer_for_all_and_for_one_route() {
    let clock = clock();
    let all = layer(&clock, "5/min").key_by(client());
    let login = layer(&clock, "2/min")
        .key_by(client())
        .share_decision(DecisionSharing::RequestAndResponse);
    let left = async |Extension(decision): Extension<Decision>| decision.remaining.to_string();
    let router = Router::new()
        .route("/login", get(left).layer(login))
        .route("/", get(async || "hello"))
        .layer(all);
    let server = serve_axum(router).await;

    let mut told = Vec::new();
    for path in ["/login", "/login", "/login", "/", "/", "/missing"] {
        // A connection each: state is the layer's, not the connection's.
        let answer = Asker::new(BOTH[told.len() % 2], server).get(path).await;
        let limit = number(&answer, "x-ratelimit-limit");
        told.push((
            answer.status().as_u16(),
            limit,
            number(&answer, "x-ratelimit-remaining"),
        ));
    }

    let expected = [
        (200, Some(2), Some(1)),
        (200, Some(2), Some(0)),
        (429, Some(2), Some(0)),
        (200, Some(5), Some(1)),
        (200, Some(5), Some(0)),
        (429, Some(5), Some(0)),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_stack_of_tower_http_goes_around_and_inside() {
    let limit = layer(&clock(), "1/min").key_by(client()).expose_headers();
    let stack = ServiceBuilder::new()
        .layer(CorsLayer::new().allow_origin(Any))
        .layer(limit)
        .layer(TimeoutLayer::with_status_code(
            StatusCode::REQUEST_TIMEOUT,
            Duration::from_secs(30),
        ));
    let router = Router::new().route("/", get(async || "hello")).layer(stack);
    let asker = Asker::new(BOTH[0], serve_axum(router).await);
    let origin = |request: http::request::Builder| request.header("origin", "https://a.example");
    let preflight = || {
        let request = origin(Request::options(asker.uri("/")));
        request.header("access-control-request-method", "GET")
    };

    let first = asker.ask(origin(Request::get(asker.uri("/")))).await;
    let second = asker.ask(origin(Request::get(asker.uri("/")))).await;

    // A denial that a script may not read would look like a broken network to it.
    for (response, status) in [
        (first, StatusCode::OK),
        (second, StatusCode::TOO_MANY_REQUESTS),
    ] {
        assert_eq!(response.status(), status);
        assert_eq!(header(&response, "access-control-allow-origin"), Some("*"));
        let exposed = header(&response, "access-control-expose-headers").expect("exposed");
        assert!(exposed.contains("x-ratelimit-remaining"), "{exposed}");
    }
    assert_eq!(asker.ask(preflight()).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_client_of_hyper_keeps_to_its_own_limit() {
    let server = serve("127.0.0.1", layer(&clock(), "9/min")).await;
    let policy = Policy::parse("upstream", "2/h").expect("a limit");
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let client = OutgoingLimitLayer::new(Limiter::in_memory(), policy).layer(client);
    let send = async || {
        let request = Request::get(format!("http://{server}/")).body(Full::default());
        client.clone().oneshot(request.expect("a request")).await
    };

    assert_eq!(
        send().await.expect("within the limit").status(),
        StatusCode::OK
    );
    assert_eq!(
        send().await.expect("within the limit").status(),
        StatusCode::OK
    );
    assert!(matches!(send().await, Err(OutgoingError::Denied(_))));
}
