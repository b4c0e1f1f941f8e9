//! What handlers learn of decisions, and where those stand.

use std::{convert::Infallible, net::SocketAddr};

use axum::{
    Router,
    body::Body,
    extract::{FromRequestParts, Request, State, connect_info::MockConnectInfo},
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::get,
};
use http::request::Parts;
use ratelimit_axum::{CurrentDecision, Decision, DecisionSharing, RateLimitLayer};
use ratelimit_tower::PeerAddr;
use tokio::task::yield_now;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};

const PEER: ([u8; 4], u16) = ([203, 0, 113, 7], 443);

fn layer(limits: &str) -> RateLimitLayer {
    RateLimitLayer::per_client(limits).expect("limits")
}

/// The limit that the handler was told of, and that of the response's header.
async fn told(app: Router) -> (String, String) {
    let response = answer(app).await;
    let header = response.headers()["x-ratelimit-limit"].to_str();
    let header = header.expect("a number").to_owned();
    let body = axum::body::to_bytes(response.into_body(), 99).await;
    let body = body.expect("a short body").to_vec();
    (String::from_utf8(body).expect("a number"), header)
}

async fn answer(app: Router) -> Response {
    let app = app.layer(MockConnectInfo(SocketAddr::from(PEER)));
    let Ok(response) = app.oneshot(Request::new(Body::empty())).await;
    response
}

async fn limit(CurrentDecision(decision): CurrentDecision) -> String {
    decision.map_or_else(String::new, |decision| decision.limit.to_string())
}

/// An extractor that waits before it looks.
struct Late(Option<Decision>);

impl<S: Sync> FromRequestParts<S> for Late {
    type Rejection = Infallible;

    async fn from_request_parts(request: &mut Parts, state: &S) -> Result<Late, Infallible> {
        yield_now().await;
        let CurrentDecision(decision) = CurrentDecision::from_request_parts(request, state).await?;
        Ok(Late(decision))
    }
}

async fn late_limit(Late(decision): Late) -> String {
    limit(CurrentDecision(decision)).await
}

async fn by_hand(
    State(layer): State<RateLimitLayer>,
    request: Request,
    next: Next,
) -> Result<Response, Response> {
    let (mut head, body) = request.into_parts();
    let passed = layer.check(&mut head).await?;
    let response = next.run(Request::from_parts(head, body)).await;
    Ok(passed.finish(response).map(Body::from))
}

#[tokio::test]
async fn the_current_decision_is_that_of_the_nearest_layer() {
    for (outer, inner) in [
        (layer("3/h"), layer("9/h")),
        (
            layer("3/h").share_decision(DecisionSharing::RequestAndResponse),
            layer("9/h"),
        ),
        (
            layer("3/h"),
            layer("9/h").share_decision(DecisionSharing::RequestAndResponse),
        ),
    ] {
        let app = Router::new().route("/", get(limit));
        let app = app.layer(inner).layer(outer);
        assert_eq!(told(app).await, ("9".to_owned(), "3".to_owned()));
    }
}

#[tokio::test]
async fn a_decision_survives_an_await() {
    let app = Router::new()
        .route("/", get(late_limit))
        .layer(layer("3/h"));

    assert_eq!(told(app).await, ("3".to_owned(), "3".to_owned()));
}

#[tokio::test]
async fn a_check_by_hand_is_nearer_than_the_layer_around_it() {
    let checked = from_fn_with_state(layer("9/h"), by_hand);

    for handler in [get(limit), get(late_limit)] {
        let app = Router::new().route("/", handler);
        let app = app.layer(checked.clone()).layer(layer("3/h"));
        assert_eq!(told(app).await, ("9".to_owned(), "3".to_owned()));
    }
}

#[tokio::test]
async fn a_layer_within_a_check_by_hand_is_nearer() {
    let checked = from_fn_with_state(layer("3/h"), by_hand);
    let app = Router::new().route("/", get(late_limit));

    let app = app.layer(layer("9/h")).layer(checked);

    assert_eq!(told(app).await, ("9".to_owned(), "3".to_owned()));
}

/// The decisions in the extensions of the request and of the response.
async fn shared(layer: RateLimitLayer) -> (bool, bool) {
    let has_decision = async |request: Request| {
        let decision = request.extensions().get::<Decision>();
        decision.is_some().to_string()
    };
    let app = Router::new().route("/", get(has_decision)).layer(layer);
    let response = answer(app).await;
    let in_response = response.extensions().get::<Decision>().is_some();
    let body = axum::body::to_bytes(response.into_body(), 99).await;
    (body.expect("a short body") == "true", in_response)
}

#[tokio::test]
async fn the_request_has_the_decision_unless_that_is_switched_off() {
    assert_eq!(shared(layer("3/h")).await, (true, false));
    assert_eq!(
        shared(layer("3/h").share_decision(DecisionSharing::RequestAndResponse)).await,
        (true, true)
    );
    assert_eq!(
        shared(layer("3/h").share_decision(DecisionSharing::Off)).await,
        (false, false)
    );
}

#[tokio::test]
async fn a_handler_that_runs_in_another_task_finds_the_decision() {
    let spawned = async |request: Request| {
        let limit = tokio::spawn(async move {
            let decision = request.extensions().get::<Decision>();
            decision.map_or(0, |decision| decision.limit)
        });
        limit.await.expect("no panic").to_string()
    };
    let app = Router::new().route("/", get(spawned)).layer(layer("3/h"));

    assert_eq!(told(app).await, ("3".to_owned(), "3".to_owned()));
}

#[tokio::test]
async fn a_layer_without_a_decision_leaves_that_of_the_outer_layer() {
    let exempt = layer("9/h").exempt_when(|_| true);
    let app = Router::new().route("/", get(limit));

    let app = app.layer(exempt).layer(layer("3/h"));

    assert_eq!(told(app).await, ("3".to_owned(), "3".to_owned()));
}

#[test]
fn an_inserted_peer_address_precedes_the_connections() {
    let put = SocketAddr::from(([198, 51, 100, 1], 1));
    let (mut request, ()) = Request::new(()).into_parts();
    assert_eq!(PeerAddr::of(&request.extensions), None);

    let mock = MockConnectInfo(SocketAddr::from(([198, 51, 100, 2], 2)));
    request.extensions.insert(mock);
    assert_eq!(PeerAddr::of(&request.extensions), Some(PeerAddr(mock.0)));

    let real = SocketAddr::from(PEER);
    request.extensions.insert(axum::extract::ConnectInfo(real));
    assert_eq!(PeerAddr::of(&request.extensions), Some(PeerAddr(real)));

    request.extensions.insert(PeerAddr(put));
    assert_eq!(PeerAddr::of(&request.extensions), Some(PeerAddr(put)));
}

#[tokio::test]
async fn services_with_other_bodies_can_be_limited_as_well() {
    let inner =
        service_fn(async |_: Request| Ok::<_, Infallible>(Response::new(String::from("hello"))));
    let limited = ServiceBuilder::new().layer(layer("1/h")).service(inner);
    let app = Router::new().route_service("/", limited);

    let (first, second) = (answer(app.clone()).await, answer(app).await);

    assert_eq!(
        (first.status().as_u16(), second.status().as_u16()),
        (200, 429)
    );
    let body = axum::body::to_bytes(first.into_body(), 99).await;
    assert_eq!(body.expect("a short body"), "hello");
}
