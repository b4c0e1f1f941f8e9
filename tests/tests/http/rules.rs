//! What every answer keeps to.

use std::time::Duration;

use http::{Request, StatusCode, request::Parts};
use ratelimit_core::Clock;
use ratelimit_http::response::HeaderStyle;
use ratelimit_tests::redis::TestRedis;
use ratelimit_tower::RateLimitLayer;
use sfv::{BareItem, Item, List, ListEntry, Parser};

use crate::server::{Asker, BOTH, Version, clock, header, layer, layer_over, number, serve};

const LIMITS: [&str; 8] = [
    "3/s",
    "token_bucket 2/7s burst 5",
    "leaky_bucket 3/s queue 4 police",
    "fixed_window 4/3s",
    "sliding_window_log 4/900ms",
    "sliding_window_counter 5/2s",
    "sliding_window_log 3/s count-denied",
    "3/s; fixed_window 7/min; sliding_window_log 9/h",
];

fn cost(request: &Parts) -> u64 {
    let cost = request
        .headers
        .get("x-cost")
        .and_then(|cost| cost.to_str().ok());
    cost.map_or(1, |cost| cost.parse().expect("a number"))
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

#[tokio::test]
async fn the_reported_wait_suffices_and_remaining_is_within_the_limit() {
    for (version, limits) in every_version_and_limit() {
        let clock = clock();
        keeps_its_word(version, layer(&clock, limits), &clock, limits).await;
    }
}

#[tokio::test]
async fn the_same_holds_with_redis() {
    let redis = TestRedis::start().await;
    for (version, limits) in every_version_and_limit() {
        let clock = clock();
        let store = redis.store(clock.clone()).await;
        keeps_its_word(version, layer_over(store, limits), &clock, limits).await;
    }
}

fn every_version_and_limit() -> impl Iterator<Item = (Version, &'static str)> {
    BOTH.into_iter()
        .flat_map(|version| LIMITS.map(|limits| (version, limits)))
}

async fn keeps_its_word(version: Version, layer: RateLimitLayer, clock: &Clock, limits: &str) {
    let asker = Asker::new(version, serve("127.0.0.1", layer.cost(cost)).await);
    let mut numbers = Numbers(7);
    for _ in 0..60 {
        let cost = 1 + numbers.below(3);
        let ask = || asker.ask(Request::get(asker.uri("/")).header("x-cost", cost));
        clock.advance(Duration::from_micros(numbers.below(700_000)));

        let response = ask().await;

        let limit = number(&response, "x-ratelimit-limit").expect("told");
        let remaining = number(&response, "x-ratelimit-remaining").expect("told");
        let reset = number(&response, "x-ratelimit-reset").expect("told");
        assert!(remaining <= limit, "{limits}");
        assert!(reset * 1_000_000 >= clock.now().as_micros(), "{limits}");
        let wait = number(&response, "retry-after");
        if response.status() == StatusCode::OK {
            assert_eq!(wait, None, "{limits}");
            continue;
        }
        let wait = wait.expect("no cost here is impossible");
        assert!(wait >= 1, "{limits}");
        clock.advance(Duration::from_secs(wait));
        assert_eq!(
            ask().await.status(),
            StatusCode::OK,
            "{limits} after {wait} s"
        );
    }
}

#[tokio::test]
async fn the_fields_of_the_draft_are_structured_fields() {
    let expected = [
        ("5/min", r#""login";q=5;w=60"#),
        ("token_bucket 10/s burst 100", r#""login";q=100;w=10"#),
        ("fixed_window 3/500ms", r#""login";q=3;w=1"#),
        (
            "5/min; fixed_window 20/h",
            r#""login.1";q=5;w=60, "login.2";q=20;w=3600"#,
        ),
    ];
    for version in BOTH {
        for (limits, policy) in expected {
            let layer = layer(&clock(), limits).headers(HeaderStyle::Ietf);
            let asker = Asker::new(version, serve("127.0.0.1", layer).await);
            for _ in 0..7 {
                let response = asker.get("/").await;

                let written = header(&response, "ratelimit-policy").expect("told");
                assert_eq!(written, policy);
                let policies = members(written, ["q", "w"]);
                let states = members(header(&response, "ratelimit").expect("told"), ["r", "t"]);
                assert_eq!(policies.len(), states.len());
                for ((name, [quota, window]), (named, [remaining, reset])) in
                    policies.iter().zip(&states)
                {
                    assert_eq!(name, named);
                    assert!(0 <= *remaining && remaining <= quota, "{limits}");
                    assert!(0 <= *reset && reset <= window, "{limits}");
                }
            }
        }
    }
}

/// The members of a list of strings, each with these two whole numbers.
fn members(field: &str, names: [&str; 2]) -> Vec<(String, [i64; 2])> {
    let list: List = Parser::new(field).parse().expect("a list of RFC 9651");
    let member = |entry: &ListEntry| {
        let ListEntry::Item(Item { bare_item, params }) = entry else {
            panic!("an inner list in {field}");
        };
        let BareItem::String(name) = bare_item else {
            panic!("no string in {field}");
        };
        assert_eq!(params.len(), names.len(), "{field}");
        let number = |name: &str| match params.get(name) {
            Some(BareItem::Integer(number)) => i64::from(*number),
            other => panic!("{other:?} in {field}"),
        };
        (name.as_str().to_owned(), names.map(number))
    };
    list.iter().map(member).collect()
}

#[tokio::test]
async fn head_and_get_are_denied_alike_but_for_the_body() {
    for version in BOTH {
        let asker = Asker::new(version, serve("127.0.0.1", layer(&clock(), "1/min")).await);
        asker.get("/").await;

        let get = asker.get("/").await;
        let head = asker.ask(Request::head(asker.uri("/"))).await;

        assert_eq!(head.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(head.body().is_empty());
        let names = [
            "content-length",
            "content-type",
            "retry-after",
            "x-ratelimit-reset",
        ];
        for name in names {
            assert_eq!(header(&head, name), header(&get, name), "{name}");
        }
        // The connection is in order: the next answer is a whole one.
        assert_eq!(asker.get("/").await.body(), get.body());
    }
}

#[tokio::test]
async fn a_problem_body_is_json_of_known_members() {
    let asker = Asker::new(
        BOTH[0],
        serve("127.0.0.1", layer(&clock(), "1/min; 1/h")).await,
    );
    asker.get("/").await;

    let denied = asker.get("/").await;

    let body: serde_json::Value = serde_json::from_slice(denied.body()).expect("JSON");
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Rate limit exceeded",
        "status": 429,
        "detail": "Try again in 3600 seconds.",
        "violated-policies": ["login.1", "login.2"],
    });
    assert_eq!(body, expected);
}
