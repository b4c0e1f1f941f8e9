//! Uploads, downloads and tokens.

use ratelimit_http::policy::{CostSource, SettleSource};

use super::{
    connection::{Open, eventually},
    site::{Site, policy},
};
use crate::{
    client::{ask, get, post, post_chunked},
    server::BOTH,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_uploads_cost_their_bytes() {
    for framework in BOTH {
        let policy = policy("1000/min").with_cost_source(CostSource::ContentLength);
        let server = Site::new(policy).serve(framework).await;

        let first = post(server, "/", &"x".repeat(600)).await;
        assert_eq!(first.status, 200, "{framework:?}");
        assert_eq!(first.field("x-ratelimit-remaining"), Some("400"));
        assert_eq!(post(server, "/", &"x".repeat(401)).await.status, 429);
        // An empty body costs the policy's cost.
        let empty = post(server, "/", "").await;
        assert_eq!(empty.field("x-ratelimit-remaining"), Some("399"));
        let rest = post(server, "/", &"x".repeat(399)).await;
        assert_eq!(rest.field("x-ratelimit-remaining"), Some("0"));
        let never = post(server, "/", &"x".repeat(1001)).await;
        assert_eq!((never.status, never.field("retry-after")), (429, None));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_of_unknown_length_costs_the_bytes_that_were_read() {
    for framework in BOTH {
        let policy = policy("1000/min").with_cost_source(CostSource::ContentLength);
        let server = Site::new(policy).serve(framework).await;
        let chunk = "x".repeat(200);

        let first = post_chunked(server, "/length", &[&chunk, &chunk]).await;
        assert_eq!((first.status, &*first.body), (200, "400"), "{framework:?}");
        assert_eq!(first.field("x-ratelimit-remaining"), Some("999"));
        let second = post(server, "/length", "x").await;
        assert_eq!(second.field("x-ratelimit-remaining"), Some("599"));
        // An unread body costs the policy's cost.
        assert_eq!(post_chunked(server, "/status/204", &[]).await.status, 204);
        let fourth = post(server, "/length", "x").await;
        assert_eq!(fourth.field("x-ratelimit-remaining"), Some("597"));
        // A body beyond the budget leaves 0.
        let fifth = post_chunked(server, "/length", &[&chunk, &chunk, &chunk]).await;
        assert_eq!((fifth.status, &*fifth.body), (200, "600"));
        let last = post_chunked(server, "/length", &[&chunk]).await;
        assert_eq!(last.status, 429);
        assert_eq!(last.field("x-ratelimit-remaining"), Some("0"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn llm_requests_are_charged_an_estimate_and_settled_at_what_they_used() {
    for framework in BOTH {
        let policy = policy("1000/min")
            .with_cost_source(CostSource::Header("x-tokens".to_owned()))
            .with_settle_source(SettleSource::Header("x-tokens-used".to_owned()));
        let server = Site::new(policy).serve(framework).await;
        let prompt = async |path: &str, estimate: &str| {
            let estimate = format!("x-tokens: {estimate}");
            ask(server, &format!("POST {path}"), &[&estimate]).await
        };

        let first = prompt("/used/150", "400").await;
        assert_eq!(first.status, 200, "{framework:?}");
        assert_eq!(first.field("x-ratelimit-remaining"), Some("600"));
        // 850 are left, of which the next estimate takes one.
        let second = prompt("/used/1", "1").await;
        assert_eq!(second.field("x-ratelimit-remaining"), Some("849"));
        // One that used more than it said is charged the rest.
        assert_eq!(prompt("/used/100", "10").await.status, 200);
        let fourth = prompt("/", "1").await;
        assert_eq!(fourth.field("x-ratelimit-remaining"), Some("748"));
        // What tells no actual cost stays at its estimate.
        let fifth = prompt("/", "many").await;
        assert_eq!(fifth.field("x-ratelimit-remaining"), Some("747"));
        assert_eq!(prompt("/", "748").await.status, 429);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downloads_are_settled_by_the_bytes_of_their_bodies() {
    for framework in BOTH {
        let estimate = 100.try_into().expect("is not zero");
        let policy = policy("1000/min").with_settle_source(SettleSource::ResponseBytes);
        let policy = policy.with_cost(estimate).expect("less than the limit");
        let server = Site::new(policy).serve(framework).await;
        // What each leaves is told to the next, which is charged its estimate of 100.
        let left = async |request: &str| {
            let answer = ask(server, request, &[]).await;
            let left = answer.field("x-ratelimit-remaining");
            left.expect("it is told").parse::<u64>().expect("a number")
        };

        assert_eq!(left("GET /bytes/40").await, 900, "{framework:?}");
        assert_eq!(left("GET /parts/60").await, 860, "of a known length");
        assert_eq!(left("GET /status/204").await, 800, "of no known length");
        assert_eq!(left("HEAD /bytes/500").await, 800, "empty");
        assert_eq!(left("GET /bytes/300").await, 800, "the answer to HEAD");
        assert_eq!(left("GET /").await, 500, "more than its estimate");
    }
}

/// Else whoever hangs up in time pays nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_that_is_left_early_costs_at_least_its_estimate() {
    for framework in BOTH {
        let estimate = 100.try_into().expect("is not zero");
        let policy = policy("1000/min").with_settle_source(SettleSource::ResponseBytes);
        let policy = policy.with_cost(estimate).expect("less than the limit");
        let server = Site::new(policy).serve(framework).await;

        drop(Open::ask(server, "/ticks", &[]).await);
        Open::fail(server, "/broken").await;

        let is_settled = eventually(|| async {
            let answer = get(server, "/parts/0").await;
            answer.field("x-ratelimit-remaining") == Some("700")
        });
        assert!(is_settled.await, "{framework:?}");
    }
}
