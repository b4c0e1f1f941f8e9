//! Several servers on one Redis: one budget, to the last request.

use std::net::SocketAddr;

use actix_web::web;
use axum::{Router, routing::get};
use futures_util::future::join_all;
use ratelimit_core::{FailureMode, Limiter, Policy, RedisConfig};
use ratelimit_tests::redis::{TestRedis, connected};

use crate::{
    client,
    server::{Framework, serve_actix, serve_axum},
};

/// A day, so that no slow machine earns another while requests come.
const LIMITS: &str = "25/d";
const BUDGET: usize = 25;
const REQUESTS: usize = 80;

/// An instance of a service, with connections of its own.
async fn instance(framework: Framework, config: RedisConfig) -> SocketAddr {
    let limiter = Limiter::new(connected(config).await).failure_mode(FailureMode::Closed);
    let policy = Policy::parse("api", LIMITS).expect("a policy");
    match framework {
        Framework::Axum => {
            let layer = ratelimit_axum::RateLimitLayer::new(limiter, policy);
            serve_axum(Router::new().route("/", get(async || "hello")).layer(layer)).await
        }
        Framework::Actix => {
            let limit = ratelimit_actix::RateLimit::new(limiter, policy);
            serve_actix(move |app| {
                let hello = web::resource("/").wrap(limit.clone());
                app.service(hello.to(async || "hello"));
            })
        }
    }
}

async fn assert_one_budget(frameworks: [Framework; 2]) {
    let redis = TestRedis::start().await;
    let config = redis.config();
    let [first, second] = frameworks;
    let first = instance(first, config.clone()).await;
    let second = instance(second, config).await;

    let asked = (0..REQUESTS).map(|place| {
        let server = if place % 2 == 0 { first } else { second };
        client::get(server, "/")
    });
    let answers = join_all(asked).await;

    let with = |status| answers.iter().filter(move |answer| answer.status == status);
    assert_eq!(with(200).count(), BUDGET, "{frameworks:?}");
    assert_eq!(with(429).count(), REQUESTS - BUDGET, "{frameworks:?}");
    let left = with(200).map(|answer| {
        let left = answer.field("x-ratelimit-remaining").expect("it is told");
        left.parse().expect("a number")
    });
    let mut left: Vec<usize> = left.collect();
    left.sort_unstable();
    assert_eq!(left, (0..BUDGET).collect::<Vec<_>>(), "each is told once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_of_actix_share_one_budget_exactly() {
    assert_one_budget([Framework::Actix, Framework::Actix]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_axum_and_of_actix_share_one_budget_exactly() {
    assert_one_budget([Framework::Axum, Framework::Axum]).await;
    assert_one_budget([Framework::Axum, Framework::Actix]).await;
}
