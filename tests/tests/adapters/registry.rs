//! Policies that change while requests come.

use std::net::SocketAddr;

use actix_web::web;
use axum::{Router, routing::get};
use ratelimit_core::{FailureMode, Limiter, MemoryStore};
use ratelimit_http::registry::Registry;
use ratelimit_tests::redis::TestRedis;

use crate::{
    client,
    server::{BOTH, Framework, clock, serve_actix, serve_axum},
};

async fn serve(framework: Framework, limiter: Limiter, registry: &Registry) -> SocketAddr {
    match framework {
        Framework::Axum => {
            let layer = ratelimit_axum::RateLimitLayer::named(limiter, registry, "api");
            let layer = layer.expect("the policy is there");
            serve_axum(Router::new().route("/", get(async || "hello")).layer(layer)).await
        }
        Framework::Actix => {
            let limit = ratelimit_actix::RateLimit::named(limiter, registry, "api");
            let limit = limit.expect("the policy is there");
            serve_actix(move |app| {
                let hello = web::resource("/").wrap(limit.clone());
                app.service(hello.to(async || "hello"));
            })
        }
    }
}

async fn assert_a_reload_keeps_what_was_spent(framework: Framework, limiter: Limiter) {
    let registry = Registry::from_toml("[policy]\napi = '4/min'").expect("a policy");
    let server = serve(framework, limiter, &registry).await;
    let told = async || {
        let answer = client::get(server, "/").await;
        let field = |name| answer.field(name).map(str::to_owned);
        let limit = field("x-ratelimit-limit");
        (answer.status, limit, field("x-ratelimit-remaining"))
    };
    let expected =
        |status, limit: &str, left: &str| (status, Some(limit.to_owned()), Some(left.to_owned()));

    assert_eq!(told().await, expected(200, "4", "3"));
    assert_eq!(told().await, expected(200, "4", "2"));

    let reloaded = registry.reload_toml("[policy]\napi = '3/min'");
    reloaded.expect("a policy");
    assert_eq!(told().await, expected(200, "3", "0"), "{framework:?}");
    assert_eq!(told().await, expected(429, "3", "0"), "{framework:?}");

    // A mistake changes nothing, and the policy of a layer cannot be removed.
    assert!(registry.reload_toml("[policy]\napi = 'many'").is_err());
    let removed = registry.reload_toml("[policy]\nlogin = '5/min'");
    assert_eq!(
        removed.expect_err("a layer uses it").to_string(),
        "the registry has no policy for the layer of \"api\"; add it, or write one of: login"
    );
    assert_eq!(told().await, expected(429, "3", "0"), "{framework:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_changes_the_numbers_and_keeps_what_was_spent() {
    for framework in BOTH {
        let limiter = Limiter::new(MemoryStore::new().clock(clock()));
        assert_a_reload_keeps_what_was_spent(framework, limiter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_keeps_what_was_spent_in_redis() {
    let redis = TestRedis::start().await;
    for framework in BOTH {
        let limiter = Limiter::new(redis.store(clock()).await);
        let limiter = limiter.failure_mode(FailureMode::Closed);
        assert_a_reload_keeps_what_was_spent(framework, limiter).await;
    }
}

#[test]
fn an_unknown_policy_name_is_an_error_at_startup() {
    let registry = Registry::from_toml("[policy]\nlogin = '5/min'").expect("a policy");

    let error = ratelimit_axum::RateLimitLayer::named(Limiter::in_memory(), &registry, "logn");
    let error = error.expect_err("it is misspelt").to_string();

    assert_eq!(error, "there is no policy \"logn\" among login");
    let again = ratelimit_actix::RateLimit::named(Limiter::in_memory(), &registry, "logn");
    assert_eq!(again.expect_err("it is misspelt").to_string(), error);
}
